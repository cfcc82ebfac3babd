#!/usr/bin/env bash
#SBATCH --job-name=report
#SBATCH --account=physics
#SBATCH --qos=normal
#SBATCH --chdir=reports
#SBATCH --output=%u-%x-%j.txt
#SBATCH --time=1:00:00
#SBATCH --mem=1G
#SBATCH --ntasks=1
#SBATCH --export=NONE,PATH,HEADRACE_STATE,GREETING=hello

echo "greeting: $GREETING, user variables: ${SECRET:-none}"
echo "time left: $(squeue -h -j "$SLURM_JOB_ID" -o %L)"
scontrol show job "$SLURM_JOB_ID" | grep -o 'JobState=[A-Z]*'
python3 - <<EOF
import os
print("from python:", os.environ["SLURM_JOB_NAME"], os.getcwd().rsplit("/", 1)[-1])
EOF
sacct -j "$SLURM_JOB_ID" --format=JobID,State,Elapsed,MaxRSS
exit 3
