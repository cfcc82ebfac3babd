#!/bin/bash
#SBATCH --job-name=pipeline
#SBATCH --output=pipeline-%j.out
#SBATCH --time=10

# Submits a chain of jobs from within a job.
first=$(sbatch --parsable --job-name=prepare --output=prepare.out --wrap="echo prepared > prepared.txt")
second=$(sbatch --parsable --job-name=work --output=work-%a.out --dependency=afterok:$first --array=0-1 \
    --wrap='echo "part $SLURM_ARRAY_TASK_ID of $(cat prepared.txt)" > part_$SLURM_ARRAY_TASK_ID.txt')
last=$(sbatch --parsable --job-name=collect --output=collect.out --dependency=afterany:${second} --wrap="cat part_*.txt > all.txt")
echo "$first $second $last"
squeue --me --format="%.18i %.10j %.2t %R"
