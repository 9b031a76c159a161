local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) table.insert(t, 1, 4) table.move(t, 1, 2, 3)
print(table.concat(t, " "), table.unpack(t), table.remove(t), table.pack(1, nil).n, next(t), select("#", 1, 2))
for k, v in pairs(setmetatable({a = 1, [1.5] = 2, [true] = 3}, {__len = function() return 1 << 40 end})) do print(k, v) end
