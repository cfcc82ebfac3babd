#!/bin/bash
#SBATCH --job-name=mpi
#SBATCH -N 1
#SBATCH -n 2
#SBATCH --mem=200M
#SBATCH --time=00:10:00
#SBATCH --output=mpi.out
#SBATCH --constraint="fast&!old"
#SBATCH --distribution=block:block

if command -v module >/dev/null 2>&1; then
    module load openmpi
fi

scontrol show hostnames "$SLURM_JOB_NODELIST" > hosts.txt
NPROCS=$SLURM_NTASKS
echo "running $NPROCS processes on $(wc -l < hosts.txt) host"
if command -v mpirun >/dev/null 2>&1; then
    mpirun --allow-run-as-root --oversubscribe -np "$NPROCS" --hostfile hosts.txt hostname
else
    srun -n "$NPROCS" hostname
fi
