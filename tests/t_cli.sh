#!/bin/sh
# The program as its user meets it: commands, exit codes, messages, files.
root=$(cd "$(dirname "$0")/.." && pwd)
: "${CUPOLA:=$root/build/release/cupola}"
cd "$root" || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0
ok() { # status, text
    n=$((n + 1))
    if [ "$1" = 0 ]; then echo "ok $n - $2"; else
        echo "not ok $n - $2"
        sed 's/^/# /' "$tmp/out" "$tmp/err" 2>/dev/null | head -20
        failed=1
    fi
}
run() { "$CUPOLA" "$@" >"$tmp/out" 2>"$tmp/err"; code=$?; }
code_is() { [ "$code" = "$1" ]; ok $? "exit code $1: $2"; }
err_has() { grep -q -- "$1" "$tmp/err"; ok $? "says: $1"; }
out_has() { grep -q -- "$1" "$tmp/out"; ok $? "prints: $1"; }

# ---- words ----
run --version; code_is 0 "--version"; out_has '^cupola [0-9]'
run --help; code_is 0 "--help"; out_has 'Example:'
run; code_is 2 "no command"
run trian configs/digits.yaml; code_is 2 "a mistyped command"; err_has 'did you mean train'
run train --jsn configs/digits.yaml; code_is 2 "a mistyped option"; err_has 'did you mean --json'
for c in train check ls show; do run $c --help; code_is 0 "$c --help"; out_has 'Example:'; done
run train; code_is 2 "train without a config"
run show nothing-fits-this --runs "$tmp/none"; code_is 2 "an unknown run"

# ---- configs ----
run train configs/digits.yaml optimizer.lrr=1; code_is 2 "an unknown key"; err_has 'optimizer.lrr'; err_has 'did you mean optimizer.lr'
cat >"$tmp/ten.yaml" <<'Y'
name: 7up
sed: 1
seed: x
model: {script: m.lua}
data: {format: csv, train: t.csv, bach: 3, last: maybe}
train: {epochs: two, log_every: -1}
optimizer: {name: adamm, lr: 0x10, betas: [0.9]}
scheduel: {name: cosine}
Y
run train "$tmp/ten.yaml"; code_is 2 "a config with ten faults"
[ "$(grep -c "^$tmp/ten.yaml:[0-9]*:[0-9]*: " "$tmp/err")" = 10 ]; ok $? "reports ten, each with line and column"
run train "$tmp/missing.yaml"; code_is 2 "a config that is not there"
run train configs/digits.yaml data.train="$tmp/no.csv"; code_is 3 "data that are not there"

# ---- models ----
cat >"$tmp/bad.lua" <<'L'
local nn = require "nn"
return function(args)
  local first = nn.linear(5)
  return {
    forward = function(x) return first(x):matmul(nn.param("a", {7, 3})) end,
    loss = function(out, y) return nn.cross_entropy(out, y) end,
  }
end
L
run train configs/digits.yaml model.script="$tmp/bad.lua" model.args=null; code_is 2 "shapes that do not fit"
err_has 'bad.lua:5'; err_has '\[64, 5\]'; err_has '\[7, 3\]'
run train configs/digits.yaml model.args.hiden=3; code_is 2 "an argument the model never reads"; err_has 'hiden'
run train configs/digits.yaml 'model.args.classes=9' --runs "$tmp/runs"; code_is 3 "a label out of range"; err_has 'label'

# ---- a run ----
run train configs/digits.yaml epochs=2 --json --runs "$tmp/runs"; code_is 0 "two epochs"
out_has '"train.loss":'; out_has '"valid.accuracy":'
tail -n 1 "$tmp/out" | grep -q '^{"event":"done","run":".*"best":{.*"last":{'; ok $? "the last line is the end"
dir=$(ls -d "$tmp"/runs/*digits-mlp | head -n 1)
for f in config.yaml model/mlp.lua model/nn.lua metrics.jsonl journal.jsonl state.json data.json log.txt lock \
    checkpoints/step-000000046/MANIFEST.json checkpoints/step-000000046/model.safetensors \
    checkpoints/step-000000046/optimizer.safetensors checkpoints/step-000000046/trainer.json; do
    [ -e "$dir/$f" ]; ok $? "the run has $f"
done
cmp -s "$dir/metrics.jsonl" - <<X
$(grep -v '"event"' "$tmp/out")
X
ok $? "--json streamed what metrics.jsonl has"
run ls --runs "$tmp/runs"; code_is 0 "ls"; out_has '^done .*digits-mlp'
run ls --json --runs "$tmp/runs"; out_has '"state":"done"'
run show @ --runs "$tmp/runs"; code_is 0 "show"; out_has 'valid.accuracy'
grep -q '^  script: model/mlp.lua ' "$dir/config.yaml"; ok $? "its config names the copy of the model"
# the same config again, from the run's own copy: the same weights
run train "$dir/config.yaml" --json --runs "$tmp/again"; code_is 0 "the run's own config trains"
cmp -s "$dir/checkpoints/step-000000046/model.safetensors" "$tmp"/again/*/checkpoints/step-000000046/model.safetensors; ok $? "and ends with the same bytes"
run train configs/digits.yaml epochs=1 --runs "$tmp/runs"; code_is 0 "not a terminal"
tr -d '\r\033' <"$tmp/err" | cmp -s - "$tmp/err"; ok $? "plain lines: no control characters"
err_has 'step 23/23.*train.loss'

# ---- signals and failures ----
rm -f "$tmp/bg"
"$CUPOLA" train configs/digits.yaml epochs=100000 --json --runs "$tmp/stop" >"$tmp/bg" 2>"$tmp/err" &
pid=$! i=0
while [ ! -s "$tmp/bg" ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i + 1)); done
kill -TERM $pid
wait $pid
code=$?
code_is 143 "SIGTERM"
ls "$tmp"/stop/*/checkpoints/step-*/MANIFEST.json >/dev/null 2>&1; ok $? "after saving a checkpoint"
run ls --runs "$tmp/stop"; out_has '^stopped'
rm -f "$tmp/bg"
"$CUPOLA" train configs/digits.yaml epochs=100000 --json --runs "$tmp/kill" >"$tmp/bg" 2>"$tmp/err" &
pid=$! i=0
while [ ! -s "$tmp/bg" ] && [ $i -lt 200 ]; do sleep 0.05; i=$((i + 1)); done
kill -KILL $pid
wait $pid 2>/dev/null
run ls --runs "$tmp/kill"; out_has '^crashed'
cat >"$tmp/nan.lua" <<'L'
local nn = require "nn"
return function(args)
  local fc = nn.linear(10)
  return {
    forward = function(x) return nn.log(fc(nn.flatten(x)) - 1e6) end,
    loss = function(out, y) return nn.cross_entropy(out, y) end,
  }
end
L
run train configs/digits.yaml model.script="$tmp/nan.lua" model.args=null --json --runs "$tmp/nan"; code_is 4 "a gradient that is not finite"; err_has 'not finite at step 1'

# ---- check ----
run check configs/digits.yaml; code_is 0 "check"
out_has 'layers.2'; out_has 'memory'; out_has 'steps *460, 23 an epoch'; out_has 'ms a step'; out_has '# .*digits.yaml:[0-9]'
run check configs/digits.yaml --json; out_has '"params":17226'
run check configs/digits.yaml --graph; out_has 'matmul'
run check configs/digits.yaml --dot; out_has '^digraph'
run check configs/digits.yaml --plan; out_has 'xent_grad'
# ---- what is made from tables is what is written ----
gen=$(dirname "$CUPOLA")/tools/gen_docs
if [ -x "$gen" ]; then
    "$gen" | cmp -s - docs/config.md; ok $? "docs/config.md is what the table of keys says (make docs)"
else
    echo "# docs/config.md not compared: no $gen"
fi
for c in configs/*.yaml; do run train "$c" epochs=1 --runs "$tmp/each"; code_is 0 "$c trains"; done
# what a sanitizer said went to the logs of the runs, like everything on 2
! grep -l "Sanitizer" "$tmp"/*/*/log.txt >"$tmp/out" 2>/dev/null; ok $? "no run's log holds a sanitizer's report"
echo "1..$n"
exit $failed
