local c = coroutine.wrap(function(a) local x <close> = setmetatable({}, {__close = print}) while true do a = coroutine.yield(a) end end)
print(c(1), c(2)) local d = coroutine.create(function() error({}) end)
print(coroutine.resume(d)) print(coroutine.close(d), coroutine.status(d), coroutine.running(), coroutine.isyieldable())
