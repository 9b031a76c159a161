local m = {} m.__index = function(t, k) return k end m.__add = function(a, b) return 1 end m.__call = function() return 2 end
local t = setmetatable({}, m) print(t.x, t + 1, t(), rawget(t, "x"), rawlen(t), rawequal(t, t), getmetatable(t) == m)
rawset(t, "y", 1) error(setmetatable({}, {__tostring = function() return "e" end}))
