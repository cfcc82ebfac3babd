#!/bin/bash
#SBATCH -J scratch
#SBATCH -t 5:00
#SBATCH --mem=50M
#SBATCH -o scratch.out

set -euo pipefail

SCRATCH=${TMPDIR:-/tmp}/$USER.$SLURM_JOB_ID
mkdir -p "$SCRATCH"
cleanup() { rm -rf "$SCRATCH"; }
trap cleanup EXIT

cp "$SLURM_SUBMIT_DIR/input.dat" "$SCRATCH/"
cd "$SCRATCH"
sort input.dat > sorted.dat
cp sorted.dat "$SLURM_SUBMIT_DIR/sorted.$SLURM_JOB_ID.dat"
echo "scratch was $SCRATCH"
