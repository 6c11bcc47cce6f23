#!/usr/bin/env bash
# The simulated events of examples/train_puma.yaml: bash examples/simulate_samples.sh samples
# 32 files of 1,300 events, half at 140 interactions and half at 0 to 220; forty minutes on two cores.
set -euo pipefail
folder=${1:?"name a folder for the samples"}
events=${EVENTS:-1300}
interactions=${INTERACTIONS:-20000}
tops="ttbar-any single-top tth"
others="wlv zll photon vbfhbb vbfhtautau higgs vhbb diboson bottom dijet-hard zprime leptoquark zvv-hard"
mkdir -p "$folder"
seed=0
for processes in ttbar ttbar ttbar zvv zvv vbfhinv vbfhinv dijet "$tops" "$tops" \
  "$others" "$others" "$others" "$others" "$others" "$others"; do
  for pileup in 140 0-220; do
    seed=$((seed + 1))
    file=$folder/simulated_$seed.parquet
    # shellcheck disable=SC2086 # a word for each process
    [ -e "$file" ] || puma-coffea simulate $processes --events "$events" --pileup "$pileup" \
      --interactions "$interactions" --seed "$seed" --output "$file"
  done
done
