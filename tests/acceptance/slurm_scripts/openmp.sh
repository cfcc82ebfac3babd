#!/bin/bash -l
#SBATCH -J omp
#SBATCH -o omp-%j.log
#SBATCH -p short
#SBATCH -n 1
#SBATCH -c 2
#SBATCH --mem-per-cpu=50M
#SBATCH -t 10
#SBATCH --hint=nomultithread
#SBATCH --export=ALL

command -v module >/dev/null 2>&1 && module load gcc

export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
echo "threads: $OMP_NUM_THREADS, memory for each core: $SLURM_MEM_PER_CPU MB"
srun python3 -c 'import os; print("step has", os.environ["OMP_NUM_THREADS"], "threads")'
