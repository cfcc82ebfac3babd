"""The options of each command of Slurm: honoured, ignored with a reason, or refused with what to do instead. Pure."""

from __future__ import annotations

from typing import Final

from headrace_cli.slurm.command_line import Table, options

_ONE_CLUSTER: Final = "no other cluster: log in to it with `headrace login`"
_NO_START_TIME: Final = "no start time: operations start as soon as there are free resources"
_CORES: Final = "cores are an amount and are not bound"
_NODES: Final = "the scheduler chooses the node, and a job runs on one node"

#: Options of jobs, which sbatch and srun share.
_OF_JOBS: Final = [
    *options("account=,A partition=,p qos=,q constraint=,C nodelist=,w exclude=,x comment= job-name=,J"),
    *options("ntasks=,n nodes=,N cpus-per-task=,c mem= mem-per-cpu= mem-per-gpu= time=,t ntasks-per-node="),
    *options("gpus=,G gres= gpus-per-task= gpus-per-node= cpus-per-gpu= ntasks-per-gpu= mincpus="),
    *options("chdir=,D output=,o error=,e input=,i open-mode= export= dependency=,d signal= requeue no-requeue"),
    *options("quiet,Q verbose,v"),
    *options("mail-type= mail-user=", ignored="nothing is mailed; use `headrace op wait` and a command of your own"),
    *options("wckey= extra= admin-comment= mcs-label= container-id=", ignored="operations have no such label"),
    *options("get-user-env?", ignored="jobs get the environment of sbatch"),
    *options("kill-on-invalid-dep=", ignored="an operation whose dependency cannot be satisfied always fails at once"),
    *options("ntasks-per-core= ntasks-per-socket= threads-per-core= sockets-per-node=", ignored=_CORES),
    *options("cores-per-socket= extra-node-info=,B hint= cpu-bind= mem-bind= gpu-bind=", ignored=_CORES),
    *options("gres-flags= accel-bind= cpu-freq= gpu-freq= core-spec=,S thread-spec= tres-bind=", ignored=_CORES),
    *options("distribution=,m contiguous spread-job switches= use-min-nodes segment=", ignored=_NODES),
    *options("wait-all-nodes= no-kill?,k oversubscribe,s overcommit,O time-min=", ignored=_NODES),
    *options("prefer= nice? acctg-freq= profile= propagate? tmp= power= delay-boot=", ignored="it has no counterpart"),
    *options("priority=", ignored="shares decide; `headrace op set ID weight=NUMBER` changes a share"),
    *options("exclusive?", refusal="--cpus-per-task with all cores of a node: a node is not given out as a whole"),
    *options("begin=,b deadline=", refusal=_NO_START_TIME),
    *options("hold,H", refusal="no --hold; `scontrol hold` after the submission suspends the job"),
    *options("clusters=,M cluster-constraint=", refusal=_ONE_CLUSTER),
    *options("reservation= licenses=,L", refusal="a pool with a guarantee: there are no reservations and no licenses"),
    *options(
        "bb= bbf= network= notify= oom-kill-step? x11? reboot resv-ports? stepmgr",
        refusal="no such option: it has no counterpart",
    ),
    *options("tres-per-task= gpus-per-socket=", refusal="--cpus-per-task, --mem and --gpus"),
    *options("uid= gid=", refusal="no account: agents choose the accounts of jobs"),
    *options("container=", refusal="`headrace run --image`"),
    *options("nodefile=,F", refusal="--nodelist with the names of the nodes"),
]

SBATCH: Final = Table(
    [
        *_OF_JOBS,
        *options("array=,a wrap= parsable wait,W test-only"),
        *options("ignore-pbs"),
        *options("batch=", ignored=_NODES),
        *options("export-file=", refusal="--export with the names of the variables"),
    ],
    anywhere=False,
)

SRUN: Final = Table(
    [
        *_OF_JOBS,
        *options("label,l unbuffered,u kill-on-bad-exit?,K overlap jobid= quit-on-interrupt"),
        *options("mpi="),
        *options("msg-timeout= slurmd-debug= treewidth= threads=,T relative=,r wait=,W exact,z", ignored=_NODES),
        *options("pty? interactive immediate?,I", refusal="`headrace shell` for a terminal"),
        *options("multi-prog het-group=", refusal="one command; `headrace run --spec` has several kinds of jobs"),
        *options("bcast? bcast-exclude= compress? send-libs?", refusal="`headrace run --upload`, which sends files"),
        *options("prolog= epilog= task-prolog= task-epilog=", refusal="the commands in the script itself"),
        *options("preserve-env,E no-allocate,Z disable-status,X", ignored="it has no counterpart"),
        *options("external-launcher", refusal="the command without it"),
    ],
    anywhere=False,
)

_JSON: Final = "--format; `headrace op list --json` has everything as JSON"
_FILTERS: Final = "--user, --name, --partition, --account or --states"
_LAYOUT: Final = "rows and units are always written in one way"
_OF_LISTS: Final = [
    *options("user=,u partition=,p account=,A name= noheader,h verbose,v"),
    *options("qos=,q", refusal=_FILTERS),
    *options("clusters=,M federation local sibling hide", ignored="there is one cluster"),
]

SQUEUE: Final = Table(
    [
        *(each for each in _OF_LISTS if each.name != "name"),
        *options("name=,n jobs=,j me states=,t format=,o Format=,O long,l array,r nodelist=,w all,a"),
        *options("sort=,S priority,P only-job-state array-unique start noconvert expand-patterns", ignored=_LAYOUT),
        *options("notme", refusal=_FILTERS),
        *options("iterate=,i", refusal="`headrace op list --watch`"),
        *options("json? yaml?", refusal=_JSON),
        *options("steps?,s reservation=,R licenses=,L", refusal="jobs only: there are no records of steps"),
    ]
)

SACCT: Final = Table(
    [
        *options("jobs=,j user=,u allusers,a accounts=,A partition=,r name= nodelist=,N state=,s"),
        *options("starttime=,S endtime=,E allocations,X noheader,n parsable,p parsable2,P delimiter= format=,o"),
        *options("long,l brief,b helpformat,e array verbose,v"),
        *options("units= noconvert truncate,T use-local-uid expand-patterns", ignored=_LAYOUT),
        *options("qos=,q uid=", refusal=_FILTERS),
        *options(
            "clusters=,M allclusters,L federation local duplicates,D whole-hetjob?", ignored="there is one cluster"
        ),
        *options("batch-script,B env-vars", refusal="`headrace op get ID --json`"),
        *options("json? yaml?", refusal=_JSON),
        *options("completion,c file=,f", refusal="sacct without it: admission keeps the records"),
        *options(
            "gid=,g wckeys=,W associations=,x constraints=,C reason=,R flags=,F", refusal="--user, --name or --state"
        ),
        *options("nnodes=,i ncpus=,I timelimit-min=,k timelimit-max=,K", refusal="--user, --name or --state"),
    ]
)

SCANCEL: Final = Table(
    [
        *options("user=,u me name=,n jobname= account=,A partition=,p state=,t nodelist=,w quiet,Q verbose,v"),
        *options("qos=,q", refusal=_FILTERS),
        *options("ctld hurry,H clusters=,M sibling=", ignored="there is one cluster"),
        *options("signal=,s batch,b full,f", refusal="scancel without it: the jobs get their interruption signal"),
        *options("interactive,i", refusal="scancel without it: nothing is asked"),
        *options("reservation=,R wckey= cron,c admin-comment=", refusal="--user, --name, --partition or --state"),
    ]
)

SINFO: Final = Table(
    [
        *options("noheader,h format=,o partition=,p nodes=,n Node,N long,l states=,t all,a exact,e verbose,v"),
        *options("noconvert sort=,S", ignored=_LAYOUT),
        *options("responding,r dead,d", refusal="--states"),
        *options("summarize,s", refusal="--format=%P,%C, which has the cores of each partition"),
        *options("clusters=,M federation local hide future,F", ignored="there is one cluster"),
        *options("iterate=,i", refusal="`headrace node list --watch`"),
        *options("Format=,O", refusal="--format"),
        *options("list-reasons,R", refusal="`headrace node list`, which has the reasons"),
        *options("reservation,T", refusal="no reservations: there are none"),
        *options("json? yaml?", refusal="`headrace node list --json`"),
    ]
)

SCONTROL: Final = Table(
    [
        *options("oneliner,o all,a details,d quiet,Q verbose,v hide"),
        *options("clusters=,M federation,F sibling local uid=,u future", ignored="there is one cluster"),
        *options("json? yaml?", refusal="`headrace op get ID --json`"),
    ]
)

SACCTMGR: Final = Table(
    [
        *options(
            "noheader,n parsable,p parsable2,P associations,s immediate,i quiet,Q readonly,r verbose,v oneliner,o"
        ),
        *options("json? yaml?", refusal="`headrace pool list --json`"),
    ]
)
