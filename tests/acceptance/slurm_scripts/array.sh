#!/bin/bash
#SBATCH --job-name=params
#SBATCH --array=1-4%2
#SBATCH --output=logs/%A_%a.out
#SBATCH --error=logs/%A_%a.err
#SBATCH --time=0-00:05:00
#SBATCH --mem=64M

# One line of the file for each task of the array.
LINE=$(sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt)
read -r alpha beta <<< "$LINE"
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT: alpha=$alpha beta=$beta"
mkdir -p results
echo $(( alpha * beta )) > "results/${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}.txt"
