package launch

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lcache/internal/serve/schedule"
)

// A world describes the processes of a training, from the variables of a launcher (torchrun, accelerate, Slurm's srun).
type world struct {
	size  int   // ranks in all; 1: no launcher
	rank  int   // of this process
	here  []int // the ranks on this machine, ascending; nil: the variables don't say
	batch bool  // the variables belong to a batch script of Slurm, not to a task that srun started
}

// mostRanks bounds the variables: the protocol has two bytes for a rank.
const mostRanks = 1 << 16

// launchedWorld reads the variables of a launcher, as launched_world of the Python client does.
func launchedWorld(environ []string) world {
	env := variables{}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	if w, ok := env.world("RANK", "WORLD_SIZE"); ok {
		w.here = block(w, env.number("LOCAL_RANK"), env.number("LOCAL_WORLD_SIZE"))
		return w
	}
	if w, ok := env.world("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"); ok && !slices.Contains([]string{"bash", "interactive"}, env["SLURM_JOB_NAME"]) {
		w.batch = env["SLURM_STEP_ID"] == "" && env["SLURM_STEPID"] == ""
		tasks := env.slurmTasks(w)
		if w.here = block(w, env.number("SLURM_LOCALID"), tasks); w.here != nil {
			w.here = env.slurmIDs(w, tasks)
		}
		return w
	}
	return world{size: 1}
}

// variables looks up variables of an environment.
type variables map[string]string

// number returns the first variable that is a number; −1: none is.
func (v variables) number(names ...string) int {
	for _, name := range names {
		if n, err := strconv.Atoi(v[name]); err == nil {
			return n
		}
	}
	return -1
}

// world returns size and rank, if both are there and make sense.
func (v variables) world(rank string, sizes ...string) (w world, ok bool) {
	w = world{size: v.number(sizes...), rank: v.number(rank)}
	return w, 0 <= w.rank && w.rank < w.size && w.size <= mostRanks
}

// block returns the ranks of a machine on which they follow each other; nil: the numbers make no sense.
func block(w world, localRank, localSize int) (ranks []int) {
	if localRank < 0 || localRank >= localSize || localRank > w.rank {
		return nil
	}
	for first, k := w.rank-localRank, 0; k < localSize && first+k < w.size; k++ {
		ranks = append(ranks, first+k)
	}
	return ranks
}

// taskCount is a part of Slurm's list of the tasks of all machines, such as 2(x3),1.
var taskCount = regexp.MustCompile(`^([0-9]{1,5})(?:\(x([0-9]{1,5})\))?$`)

// slurmTasks returns how many of a step's tasks run on this machine: by the list of all machines' tasks, else by the limit that srun was given; −1: unknown.
func (v variables) slurmTasks(w world) int {
	ends := taskEnds(cmp.Or(v["SLURM_STEP_TASKS_PER_NODE"], v["SLURM_TASKS_PER_NODE"]), w.size)
	if ends == nil { // the list belongs to the allocation, not to this step
		return v.number("SLURM_NTASKS_PER_NODE")
	}
	machine := v.number("SLURM_NODEID")
	if machine < 0 || machine >= len(ends) {
		machine = slices.IndexFunc(ends, func(end int) bool { return end > w.rank })
	}
	if machine == 0 {
		return ends[0]
	}
	return ends[machine] - ends[machine-1]
}

// taskEnds returns the number of tasks up to each machine in Slurm's list; nil: the list does not have size tasks.
func taskEnds(list string, size int) (ends []int) {
	end := 0
	for _, part := range strings.Split(list, ",") {
		m := taskCount.FindStringSubmatch(part)
		if m == nil {
			return nil
		}
		count, _ := strconv.Atoi(m[1])
		times, _ := strconv.Atoi(cmp.Or(m[2], "1"))
		for range times {
			if end += count; count == 0 || end > size {
				return nil
			}
			ends = append(ends, end)
		}
	}
	if end != size {
		return nil
	}
	return ends
}

// slurmIDs returns the ranks on this machine as Slurm lists them, which need not follow each other. If it does not list all of them, they are w.here.
func (v variables) slurmIDs(w world, tasks int) []int {
	ids := map[int]bool{}
	for _, part := range strings.Split(v["SLURM_GTIDS"], ",") {
		id, err := strconv.Atoi(part)
		if err != nil || id < 0 || id >= w.size {
			return w.here
		}
		ids[id] = true
	}
	if len(ids) != tasks || !ids[w.rank] {
		return w.here
	}
	return slices.Sorted(maps.Keys(ids))
}

// launched returns the world of the launcher that started this process. A batch script is not a rank: it may start several programs.
func (r *run) launched() world {
	w := launchedWorld(r.Environ)
	if w.batch {
		return world{size: 1}
	}
	return w
}

// placed returns a job with the launcher's world, and its ranks on this machine, if only a part of the ranks read here. World and ranks that were given stay, and so does the
// world of the recipe that a cache keeps: its orders follow from it.
func (r *run) placed(j schedule.Job, kept bool) schedule.Job {
	w := r.launched()
	open := kept && j.Recipe == "" || !kept && j.World == 0
	switch {
	case w.here == nil || r.RanksGiven || !open && j.World != w.size:
	case len(w.here) < w.size:
		j.World, j.Ranks = w.size, w.here
	case j.Ranks != nil: // of an earlier run, over several machines
		j.World, j.Ranks = w.size, nil
	}
	return j
}
