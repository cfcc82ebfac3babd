"""Commands of Slurm for tools and scripts that call them: `sbatch`, `srun`, `squeue`, `scancel`, `sacct`, `sinfo`, `scontrol`
and `sacctmgr`.

`headrace slurm install DIR` writes a file for each command that runs `python -m headrace_cli.slurm COMMAND`. Reading order:

    options.py, command_line.py    pure: the options of each command, and what becomes of each: honoured, ignored or refused
    numbers.py                     pure: the number of a job and the id of its operation
    batch_script.py, pools_file.py, request.py  pure: a script with `#SBATCH` lines becomes an `OperationSpec`
    values.py, start_script.py     pure: times, memory, names of files; the shell script that starts a job
    jobs.py, fields.py, printing.py  pure: answers of the services as Slurm's jobs, their fields, and rows of these fields
    nodes.py                       pure: nodes and partitions as Slurm writes them
    submit.py, steps.py, query.py, control.py, accounts.py  one function for each command, which asks the client
    command.py                     `headrace slurm install`
"""
