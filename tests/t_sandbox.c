/* A model script cannot harm, stall or surprise its host, and every refusal names a file and a
 * line. */
#include "engine/script/priv.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/fsio.h"
#include "tap.h"

static char dir[] = "/tmp/t_sandbox.XXXXXX";
static char printed[8192];

static void on_print(void *arg, const char *line)
{
    (void)arg;
    size_t n = strlen(printed);
    snprintf(printed + n, sizeof printed - n, "%s\n", line);
}

static int64_t budget = 2000000; /* of instructions */

static struct script_opts opts(void)
{
    static char path[256], shipped[256];
    snprintf(path, sizeof path, "%s/m.lua", dir);
    snprintf(shipped, sizeof shipped, "%s/shipped", dir);
    return (struct script_opts){.path = path,
                                .shipped = shipped,
                                .seed = 42,
                                .max_instructions = budget,
                                .max_bytes = 16 << 20,
                                .max_seconds = 60,
                                .print = on_print};
}

/* Runs text as a model; a good one ends with END. */
#define END "\nreturn function() return {forward = print, loss = print} end"

static enum err_code run(const char *text, struct err *e)
{
    struct script_opts o = opts();
    struct script *s = NULL;

    printed[0] = '\0';
    e->msg[0] = '\0';
    enum err_code rc = script_open_text(&o, text, strlen(text), &s, e);
    script_free(s);
    return rc;
}

/* The text is refused with a message that holds `want`; the budgets bound the time. */
static void refused(const char *text, const char *want, const char *claim)
{
    struct err e = {0};
    double t = clock_now();
    enum err_code rc = run(text, &e);

    t = clock_now() - t;
    if (!ok(rc == ERR_SCRIPT && strstr(e.msg, want), "%s", claim))
        note("%d %.2f s: %s", rc, t, e.msg);
}

static void works(const char *text, const char *want, const char *claim)
{
    struct err e = {0};
    char whole[4096];

    snprintf(whole, sizeof whole, "%s%s", text, END);
    if (!ok(run(whole, &e) == ERR_OK && strcmp(printed, want) == 0, "%s", claim))
        note("%s | %s", e.msg, printed);
}

static void put(const char *name, const char *text)
{
    struct err e;
    char *path = fs_join(dir, name), *folder = fs_dirname(path);
    fs_mkdirs(folder, &e);
    fs_replace_quick(folder, fs_basename(path), text, strlen(text), &e);
    free(path);
    free(folder);
}

static void test_loops(void)
{
    refused("while true do end", "m.lua:1: over the budget", "a loop without end names its line");
    refused("\n\nlocal function f() return f() end f()", "m.lua:3: over the budget",
            "so does a tail call without end");
    refused("while true do pcall(function() while true do end end) end", "over the budget",
            "pcall in a loop cannot go on");
    refused("while true do pcall(error) end", "over the budget", "nor can pcall(error)");
    refused("local function f() pcall(f) while true do end end f()", "over the budget",
            "nor nested ones");
    refused("while true do coroutine.wrap(function() for i = 1, 80 do end end)() end",
            "over the budget", "fresh coroutines in a loop share the budget");
    refused("local c = coroutine.wrap(function() while true do coroutine.yield() end end)"
            " while true do c() end",
            "over the budget", "so does one that yields for ever");
    refused("coroutine.wrap(function() while true do end end)()", "m.lua:1: over the budget",
            "a loop in a coroutine names its line");
    refused(
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "over the budget", "resume does not swallow the budget");
    refused("xpcall(function() while true do end end, function() while true do end end)"
            " while true do end",
            "over the budget", "an xpcall handler is watched as well");
    refused("local t = setmetatable({}, {__close = function() while true do end end})"
            " local co = coroutine.wrap(function() local x <close> = t; while true do end end)"
            " pcall(co) while true do end",
            "over the budget", "a __close of a coroutine that ran out does not run unwatched");
    refused("local t = setmetatable({}, {__close = function() while true do end end})"
            " local co = coroutine.create(function() local x <close> = t; while true do end end)"
            " coroutine.resume(co) coroutine.close(co) while true do end",
            "over the budget", "nor does coroutine.close run it");
    refused(
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "m.lua:1: ", "an __index without end is an error");
    refused("local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
            "over the budget", "so is a loop in a metamethod");
    refused("table.sort({3, 1, 2, 4}, function() while true do end end)", "over the budget",
            "so is one in a comparison");
    refused("('x'):gsub('x', function() while true do end end)", "over the budget",
            "so is one in a replacement");
    refused("while true do load('return 1') end", "over the budget", "loading costs");
    refused("local function f() return 1 + f() end f()",
            "m.lua:1: ", "deep recursion is an error with a line");
    refused("local function f() return pcall(f) end f() while true do end",
            "m.lua:1: ", "deep recursion through pcall ends");
    refused("local s = ('('):rep(1000) load(s .. s)() ",
            "m.lua:1: ", "deep nesting does not parse");
    refused("string.rep = nil" END, "string cannot be changed", "library tables cannot be changed");
    refused("rawset(string, 'rep', 1)" END, "protected", "nor by rawset");
    refused("rawset(math, 'x', 1)" END, "protected", "math neither");
}

/* A coroutine that ends before its first count would cost nothing but its making. */
static void test_short_coroutines(void)
{
    struct err e;
    int n = 0;

    run("local n = 0 while true do coroutine.wrap(function() for i = 1, 220 do end end)() n = n + 1"
        " if n % 100 == 0 then print('') end end",
        &e);
    for (const char *p = printed; *p; p++)
        n += *p == '\n';
    ok(n >= 10 && n <= 25, "2 million instructions are about 2000 short coroutines (%d00)", n);
}

static void test_sizes(void)
{
    refused("('x'):rep(1e10)", "m.lua:1: ", "rep of 1e10 is refused");
    works("print(#(''):rep(1e18), (''):rep(2^53|0) == '')", "0\ttrue\n",
          "rep of nothing is nothing, at once");
    refused("('ab'):rep(1 << 62)", "memory budget", "rep that overflows is refused");
    refused("local t = {} for i = 1, 1e9 do t[i] = {} end", "m.lua:1: over the memory budget",
            "a growing table meets the memory budget, with its line");
    refused("local s = 'x' while true do s = s .. s end", "over the memory budget",
            "growing text does");
    budget =
        200000; /* an error that is thrown and caught is a hundred times dearer under a sanitizer */
    refused("local s = ('x'):rep(1e6) while true do pcall(string.rep, s, 1e4) end",
            "over the budget", "refusals in a loop meet the instruction budget");
    budget = 2000000;
    refused("while true do pcall(function() local s = 'x' while true do s = s .. s end end) end",
            "over the", "memory errors caught in a loop end as well");
    refused("table.move({}, 1, 1e15, 2)", "10000000", "table.move of huge ranges is refused");
    refused("table.concat(setmetatable({}, {__index = function() return '' end}), '', 1, 1e15)",
            "10000000", "table.concat too");
    refused("table.concat(setmetatable({}, {__len = function() return 1 << 60 end}))", "10000000",
            "and lengths that lie");
    refused("table.unpack({}, 1, 1e15)", "10000000", "table.unpack too");
    refused("table.unpack({}, 1, 1.5e6)", "too many results", "and what does not fit the stack");
    refused("table.insert(setmetatable({}, {__len = function() return 1e15 // 1 | 0 end}), 1, 2)",
            "10000000", "table.insert too");
    refused("table.remove(setmetatable({}, {__len = function() return 1 << 50 end}), 1)",
            "10000000", "table.remove too");
    refused("table.sort(setmetatable({}, {__len = function() return 1 << 50 end}))", "10000000",
            "table.sort too");
    refused("string.format('%99999d', 1)", "m.lua:1: ", "a width of 99999 is refused");
    refused("string.format('%p', {})", "address", "%p is refused");
    works("print(string.format('%s %5.2f %d %q %%', {}, 1.5, 3, 'a'))", "table  1.50 3 \"a\" %\n",
          "format works, without addresses");
}

static void test_patterns(void)
{
    refused("string.find(('a'):rep(1e5), '.-.-.-.-b$')", "may take too long",
            "nested repetitions are refused");
    refused("string.find(('a'):rep(1000), ('a?'):rep(40) .. ('a'):rep(40))", "may take too long",
            "many ? are refused");
    refused("for _ in string.gmatch(('a'):rep(1e5), '(.-)(.-)b') do end", "may take too long",
            "gmatch too");
    refused("string.gsub(('a'):rep(1e5), '.*.*b', '')", "may take too long", "gsub too");
    refused("string.match(('a'):rep(1e5), '%b()%b()x*')", "may take too long", "%b too");
    refused("string.match(('a'):rep(3e6), 'a')", "1 MiB", "texts above 1 MiB are refused");
    refused("string.find('x', '[')", "m.lua:1: ", "a malformed pattern has a line");
    works("print(('a'):rep(1e6):find(('a'):rep(5e5) .. 'b', 1, true))", "nil\n",
          "plain search is linear");
    works("print(('hello world'):find('wor'), ('a.b'):find('.', 1, true), ('x'):find('', 9),"
          " ('abc'):find('c', -1))",
          "7\t2\tnil\t3\t3\n", "plain search answers as Lua does");
    works("print(('k=v; a=b'):gsub('(%w+)=(%w+)', '%2=%1')) print(('  x '):match('^%s*(.-)%s*$'))",
          "v=k; b=a\t2\nx\n", "ordinary patterns work");
}

static void test_absent(void)
{
    refused("os.exit()", "m.lua:1: ", "there is no os");
    refused("io.open('/etc/passwd')", "m.lua:1: ", "there is no io");
    works("print(os, io, debug, package, dofile, loadfile, string.dump, string.pack, _G.os)",
          "nil\tnil\tnil\tnil\tnil\tnil\tnil\tnil\tnil\n", "what is not allowed is absent");
    refused("setmetatable({}, {__gc = function() error('gc') end})", "__gc", "no finalizers");
    refused("setmetatable('', {})", "m.lua:1: ", "the string metatable cannot be set");
    works("print(getmetatable('')) print(pcall(setmetatable, string, {}))",
          "false\nfalse\tcannot change a protected metatable\n", "nor had");
    refused("getmetatable('').__index.rep = print",
            "m.lua:1: ", "nor changed through getmetatable");
    refused("collectgarbage('stop')", "only \"count\"", "the collector is not the script's");
    works("print(type(collectgarbage('count')))", "number\n", "but its count can be had");
    refused("load('\\27Lua', 'x', 'b')", "only text", "no bytecode by mode");
    works("print((load('\\27Lua')))", "nil\n", "nor by content");
    works("print(load('return 1 +')) print(load('return x', 'n', 't', {x = 5})())",
          "nil\t(load):1: unexpected symbol near <eof>\n5\n", "load gives errors and takes an env");
    works("local n = 0 print(load(function() n = n + 1 return ({'return ', '7'})[n] end)())", "7\n",
          "load takes pieces");
    refused("load(('x = 1 '):rep(3e5))", "1 MiB", "load of more than 1 MiB is refused");
}

static void test_errors(void)
{
    refused("error(nil)", "m.lua:1: ", "error(nil) has a line");
    refused("\nerror({})", "m.lua:2: the error is no text but a table", "error({}) has a line");
    refused("error(setmetatable({}, {__tostring = function() while true do end end}))",
            "m.lua:1: ", "an error object is not asked for its text");
    refused("error('plain', 0)", "m.lua:1: plain", "an error without a level gets a line");
    refused("error(42)", "42", "a number is a message");
    refused("local x = nil; x.y = 1", "m.lua:1: attempt to index", "Lua's own errors have theirs");
    refused("x = = 1", "m.lua:1: unexpected symbol", "syntax errors too");
    refused("error('a\\nb\\27[2J')", "a\\x0ab\\x1b[2J", "control characters are made visible");
    refused("coroutine.wrap(function() error({}) end)()",
            "m.lua:1: ", "an error object out of a coroutine has a line");
    refused("return 1", "returns a function of args", "a script that returns no function");
    refused("return function() end", "returns a table", "a function that returns no table");
    refused("return function() return {forward = 1} end", "must be a function", "a wrong field");
    refused("return function() return {forward = print, los = print} end", "did you mean loss",
            "an unknown field names the nearest");
}

static void test_order(void)
{
    works("local t = {} for _, k in ipairs{'b', 'a', 10, 2, 1.5, 'c', true, -1} do t[k] = 0 end"
          " local o = {} for k in pairs(t) do o[#o + 1] = tostring(k) end print(table.concat(o, ' "
          "'))",
          "-1 1.5 2 10 a b c true\n", "pairs goes in sorted order");
    works("print(next({b = 1, a = 2})) print(next({b = 1, a = 2}, 'a')) print(next({}))",
          "a\t2\nb\t1\nnil\n", "so does next");
    works("local t, n = {1, 2, 3, 4}, 0 for k in pairs(t) do t[k + 1] = nil n = n + 1 end print(n)",
          "2\n", "keys removed on the way are passed over");
    works("print(pcall(pairs, {[{}] = 1, [{}] = 2})) print(next({[print] = 1}) == print)",
          "false\ta table with several keys that are tables, functions or tensors has no order "
          "that is the same in every process; keep such keys in a list\ntrue\n",
          "keys without an order are refused");
    works("print({}, print, coroutine.create(print))", "table\tfunction\tthread\n",
          "tostring has no addresses");
    works("print(setmetatable({}, {__name = 'N'}), setmetatable({}, {__tostring = function() return"
          " 'T' end}))",
          "N\tT\n", "__name and __tostring count");
    works("local s = {} for k in pairs(table) do s[#s + 1] = k end print(table.concat(s, ' '))",
          "concat insert move pack remove sort unpack\n", "libraries can be listed");
    works("local t = {} for i = 1, 300 do t[i] = {i // 10, i} end"
          " table.sort(t, function(a, b) return a[1] > b[1] end)"
          " local fine = true for i = 2, 300 do local a, b = t[i - 1], t[i]"
          " fine = fine and (a[1] > b[1] or a[1] == b[1] and a[2] < b[2]) end print(fine)",
          "true\n", "sort is right and stable");
    works("local t = {5, 3, 1} table.sort(t, function() return true end) print(#t)"
          " table.sort(t) print(table.concat(t, ' '))",
          "3\n1 3 5\n", "an inconsistent comparison does no harm");
    works(
        "local t = {1, 2, 3} table.insert(t, 2, 9) print(table.concat(t, ' '), table.remove(t, 1),"
        " table.remove(t), #t, table.remove({}))",
        "1 9 2 3\t1\t3\t2\tnil\n", "insert and remove");
}

static void test_random(void)
{
    char first[sizeof printed];
    const char *text = "print(math.random(), math.random(6), math.random(-5, 5), math.random(0))";

    works("local n = {0, 0, 0} for i = 1, 3000 do local k = math.random(3) n[k] = n[k] + 1 end"
          " print(n[1] > 900 and n[2] > 900 and n[3] > 900)"
          " local x = 0 for i = 1, 1000 do local r = math.random() x = x + r"
          " if r < 0 or r >= 1 then print('out') end end print(x > 450 and x < 550)",
          "true\ntrue\n", "math.random is uniform");
    works("print((pcall(math.random, 2, 1))) print(math.random(math.mininteger, math.maxinteger) "
          "~= nil)",
          "false\ntrue\n", "its limits are checked");
    char whole[512];
    struct err e;
    snprintf(whole, sizeof whole, "%s%s", text, END);
    run(whole, &e);
    memcpy(first, printed, sizeof first);
    run(whole, &e);
    ok(strcmp(first, printed) == 0 && strlen(first) > 10, "it is the same in every state: %.30s",
       first);
    struct script_opts o = opts();
    struct script *s;
    o.seed = 43;
    printed[0] = '\0';
    script_open_text(&o, whole, strlen(whole), &s, &e);
    script_free(s);
    ok(strcmp(first, printed) != 0, "another seed gives other numbers");
    works("math.randomseed(7) local a = math.random() math.randomseed(8) local b = math.random()"
          " math.randomseed(7) print(a == math.random(), a ~= b)",
          "true\ttrue\n", "randomseed chooses a stream");
}

static void test_require(void)
{
    put("own.lua", "return {name = 'own', n = (... )}");
    put("sub/deep.lua", "return 'deep'");
    put("loop1.lua", "return require 'loop2'");
    put("loop2.lua", "return require 'loop1'");
    put("bad.lua", "\nlocal x = = 1");
    put("none.lua", "x = 1");
    put("shipped/ship.lua", "return 'shipped'");
    put("shipped/own.lua", "return {name = 'shipped'}");
    char *big = calloc(1, (2 << 20) + 1);
    memset(big, ' ', 2 << 20);
    put("big.lua", big);
    free(big);
    char *from = fs_join(dir, "link.lua"), *to = fs_join(dir, "own.lua");
    ok(symlink(to, from) == 0, "a symbolic link is made");
    free(from);
    free(to);

    works("print(require('own').name, require 'own' == require 'own', require 'sub.deep',"
          " require 'sub/deep', require 'ship', require 'none', require('link').name)",
          "own\ttrue\tdeep\tdeep\tshipped\ttrue\town\n",
          "require finds the model's folder first, then the shipped one, once each");
    refused("require '../own'", "stays within", "no ..");
    refused("require '/etc/passwd'", "stays within", "no absolute path");
    refused("require '.own'", "stays within", "no leading dot");
    refused("require 'sub/../own'", "stays within", "no .. inside");
    refused("require 'sub...own'", "stays within", "no dots in a row");
    refused("require 'o\\0wn'", "m.lua:1: ", "no zero byte");
    refused("require 'absent'", "no module \"absent\" in", "a missing module names the folders");
    refused("require 'loop1'", "requires itself", "a circle is refused");
    refused("require 'big'", "big.lua", "a file above 1 MiB is refused");
    refused("require 'bad'", "bad.lua:2: unexpected symbol", "a broken module names its own line");
    refused("require 'nn.core'", "use require \"nn\"", "the primitives are for nn.lua");
    refused("require(setmetatable({}, {}))", "m.lua:1: ", "a name is text");
}

static void test_files(void)
{
    struct script_opts o = opts();
    struct script *s = NULL;
    struct err e = {0};
    const char *const *paths = NULL;

    put("m.lua", "require 'ship' require 'own'" END);
    ok(script_open(&o, &s, &e) == ERR_OK, "a script is opened from its file %s", e.msg);
    int n = s ? script_files(s, &paths) : 0;
    ok(n == 3 && strstr(paths[0], "/m.lua") && strstr(paths[1], "/shipped/ship.lua") &&
           strstr(paths[2], "/own.lua") && paths[0][0] == '/',
       "the files used are listed, the script first");
    script_free(s);
    o.path = "/no/such.lua";
    ok(script_open(&o, &s, &e) != ERR_OK && !s && strstr(e.msg, "/no/such.lua"),
       "a missing file: %s", e.msg);
}

static void test_print(void)
{
    struct err e;

    works("print('a\\nb', 1, nil, 2.0)", "a\nb\t1\tnil\t2.0\n", "print gives lines");
    works("print(('x'):rep(1e6):len()) print(#tostring(('y'):rep(5000)))", "1000000\n5000\n",
          "long texts exist");
    run("for i = 1, 5000 do print('') end print('last')" END, &e);
    ok(strstr(printed, "too many lines") && !strstr(printed, "last"), "print is bounded in lines");
    run("print(('x'):rep(100000))" END, &e);
    ok(strlen(printed) == 4097, "and in width");
    refused("for i = 1, 1e9 do print('x') end", "over the budget", "and ends");
}

static void test_coroutines(void)
{
    works(
        "local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) return b * 2 end)"
        " print(coroutine.resume(c, 1)) print(coroutine.resume(c, 5)) print(coroutine.resume(c))"
        " print(coroutine.status(c), coroutine.close(c))",
        "true\t2\ntrue\t10\nfalse\tcannot resume dead coroutine\ndead\ttrue\n", "coroutines work");
    works("local g = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end)"
          " print(g(), g(), g()) print(pcall(coroutine.wrap(function() error('x', 0) end)))",
          "1\t2\t3\nfalse\tx\n", "wrap works");
    works("local closed = false local c = coroutine.create(function()"
          " local x <close> = setmetatable({}, {__close = function() closed = true end})"
          " coroutine.yield() end) coroutine.resume(c) print(coroutine.close(c), closed)",
          "true\ttrue\n", "closing a waiting coroutine closes its variables");
    works("print(xpcall(function(a) return a end, print, 5)) print(xpcall(error, function(m) return"
          " 'h' .. m end, 'e'))",
          "true\t5\nfalse\the\n", "xpcall works");
}

static void test_locale(void)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        note("no de_DE locale here: the next line tests less");
    works("print(1.5, tonumber('0.25'), string.format('%.2f', 0.5), 'a' < 'B')",
          "1.5\t0.25\t0.50\tfalse\n", "numbers have dots whatever the locale");
    setlocale(LC_ALL, "C");
}

/* The wall clock ends what the other budgets would allow. */
static void time_limit(void)
{
    const char *text = "while true do end";
    struct script_opts o = opts();
    struct script *s = NULL;
    struct err e = {0};

    o.max_instructions = INT64_MAX;
    o.max_seconds = 0.05;
    ok(script_open_text(&o, text, strlen(text), &s, &e) == ERR_SCRIPT &&
           strstr(e.msg, "over the time budget"),
       "a loop without end meets the clock: %s", e.msg);
    script_free(s);
}

int main(void)
{
    struct err e;

    if (!mkdtemp(dir))
        skip_all("no temporary folder");
    put("shipped/x.lua", "");
    test_loops();
    test_short_coroutines();
    test_sizes();
    test_patterns();
    test_absent();
    test_errors();
    test_order();
    test_random();
    test_require();
    test_files();
    test_print();
    test_coroutines();
    test_locale();
    fs_remove_tree(dir, &e);
    time_limit();
    return tap_done();
}
