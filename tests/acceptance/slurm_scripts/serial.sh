#!/bin/bash
#
#SBATCH --job-name=serial_test        # name in the queue
#SBATCH --output=%x.%j.out            # %x is the name, %j the number
#SBATCH --error=%x.%j.err
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --mem=100M
#SBATCH --time=00:05:00               # hh:mm:ss
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=ada@example.org

cd "$SLURM_SUBMIT_DIR" || exit 1
if command -v module >/dev/null 2>&1; then
    module purge
    module load python
fi

echo "Job $SLURM_JOB_ID ($SLURM_JOB_NAME) runs on $SLURM_JOB_NODELIST"
date
python3 -c 'print("pi is about", 355 / 113)'
echo "a message on stderr" >&2
