local s = ("ab"):rep(10, "-") print(s:find("b-", 1, true), s:match("(%w+)-?"), s:gsub("%w", "%0%0"))
for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do print(k, v) end
print(("%5.2f %s %q %d %x"):format(1.5, {}, "q", 7, 255), s:upper():lower():reverse():sub(2, -2):byte(1, 3), #s, utf8.len(s), utf8.char(228))
