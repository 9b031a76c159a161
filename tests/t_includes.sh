#!/bin/sh
# Who may include whom (docs/architecture.md). A rule: a folder, what its files must not include, why.
cd "$(dirname "$0")/.." || exit 1
n=0 failed=0
report() { # text, hits, why
    n=$((n + 1))
    if [ -z "$2" ]; then
        echo "ok $n - $1"
    else
        failed=1
        echo "not ok $n - $1: $3"
        echo "$2" | sed 's/^/# /'
    fi
}
includes() { # folder: every include of its sources as file:line:what
    find "$@" -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' | sort | xargs -r grep -nE '^ *# *include *[<"]' /dev/null
}
never() { # folder, regex of what is included, why
    report "$1 does not include $2" "$(includes "$1" | grep -E "include *[<\"]($2)")" "$3"
}
only() { # regex of what is included, regex of the files that may, why
    report "only $2 includes $1" "$(includes engine tui kernels | grep -E "include *[<\"]($1)" | grep -vE "^($2)")" "$3"
}
# A folder of engine/ may include itself, base, what is named, and the shared headers of kernels/.
may() { # folder, regex of the other engine folders
    report "engine/$1 includes only itself, base, ($2)" \
        "$(includes "engine/$1" | grep -E 'include *"' | grep -vE "include *\"(engine/($1|base${2:+|$2})/|kernels/(dtype|philox|ew|kernels)\.h)")" "arrows never turn back"
}
never kernels 'engine/|tui/' 'numbers only'
never engine 'tui/|n?curses' 'a run needs no screen'
report 'engine/base includes only itself, libc and jansson' "$(includes engine/base | grep -E 'include *"' | grep -v '"engine/base/')" 'everything stands on it'
may config ''
may tune ''
may graph ''
may data 'config'
may run ''
may script 'config|graph'
never engine/script 'engine/(plan|device|train|run)/' 'a model is symbols'
report 'kernels.h is known to engine/device, engine/plan, the op table and the hyper block only' \
    "$(includes engine tui | grep 'kernels/kernels\.h' | grep -vE '^(engine/device/|engine/plan/|engine/graph/op\.c|engine/train/hyper\.h)')" 'one road to a backend'
report 'a backend is reached through its interface' "$(includes engine tui | grep -E '"kernels/(cpu|ref|cuda)/')" 'plugins'
report 'tui/ (but its commands) includes engine/{config,run,control,tune,base} only' \
    "$(find tui -maxdepth 1 -name '*.[ch]' | sort | xargs -r grep -nE '^ *# *include *"' /dev/null | grep -E '"(engine|kernels)/' | grep -vE '"engine/(config|run|control|tune|base)/')" 'the screen reads runs, not the trainer'
only 'yaml\.h' 'engine/config/' 'one loader, one way to report a line'
only '(lua|lauxlib|lualib)\.h' 'engine/script/' 'one sandbox'
only 'n?curses' 'tui/term\.c' 'widgets draw cells'
only 'dnnl' 'kernels/cpu/' 'one file of primitives'
only 'cuda|cublas|cudnn|nccl' 'kernels/cuda/' 'the program runs without CUDA'
# A header stands alone and is guarded; a .c file includes its own header first.
bad=
for h in $(find engine tui kernels -name '*.h' | sort); do
    grep -q '^#ifndef ' "$h" || bad="$bad $h"
done
report 'every header has a guard' "$bad" 'it may come twice'
bad=
for c in $(find engine tui kernels -name '*.c' | sort); do
    h="${c%.c}.h"
    [ -e "$h" ] || continue
    first=$(grep -m1 -E '^ *# *include' "$c" | sed 's/.*["<]\(.*\)[">].*/\1/')
    [ "$first" = "$h" ] || bad="$bad $c"
done
report 'a .c file includes its own header first' "$bad" 'then the header is known to stand alone'
echo "1..$n"
exit $failed
