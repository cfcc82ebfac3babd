#!/bin/bash
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=1
#SBATCH --mem=200M
#SBATCH --time=0:10:00
#SBATCH --output=train-%j.out

module load cuda 2>/dev/null || true
source activate my_env 2>/dev/null || true

echo "devices: '${CUDA_VISIBLE_DEVICES-unset}', asked for: $SLURM_GPUS_ON_NODE"
command -v nvidia-smi >/dev/null && nvidia-smi
srun --gres=gpu:1 python3 -c 'print("epoch 1 done")'
