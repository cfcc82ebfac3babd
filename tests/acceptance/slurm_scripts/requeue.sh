#!/bin/bash
#SBATCH --job-name=checkpoints
#SBATCH --time=00:00:04
#SBATCH --signal=B:USR1@2
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=checkpoints.out

save() {
    echo "saved at step $step"
    echo "$step" > checkpoint.txt
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}
trap save USR1

step=$(cat checkpoint.txt 2>/dev/null || echo 0)
echo "run ${SLURM_RESTART_COUNT:-0} starts at step $step"
while [ "$step" -lt 15 ]; do
    sleep 0.2 &
    wait $!
    step=$((step + 1))
done
echo "finished"
