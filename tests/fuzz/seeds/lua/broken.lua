local x <const> = 1; goto done; x = = 2 ::done:: return {
