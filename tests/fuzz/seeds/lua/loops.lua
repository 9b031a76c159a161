local function f(n) if n > 0 then return f(n - 1) end end
for i = 1, 10 do pcall(f, i) end
while true do pcall(error, nil) end
