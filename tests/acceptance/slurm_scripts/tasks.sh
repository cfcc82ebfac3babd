#!/bin/bash
#SBATCH --job-name=tasks
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=3
#SBATCH --cpus-per-task=1
#SBATCH --time=5
#SBATCH --output=tasks.out

srun --label hostname
srun bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS" > "rank_$SLURM_PROCID.txt"'

# Several steps beside each other.
for i in 1 2; do
    srun --ntasks=1 --exact --output="step_$i.txt" bash -c "echo step $i" &
done
wait
