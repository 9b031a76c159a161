print(load("return ...", "n", "t", {})(1)) print(load(function() return nil end)) print(pcall(load, "x", "x", "b"))
print(xpcall(error, tostring, "e")) local ok, e = pcall(require, "../x") print(e) print(math.random(5), math.randomseed(3), collectgarbage("count") > 0)
