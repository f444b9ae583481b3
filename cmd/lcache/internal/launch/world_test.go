package launch

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
)

// TestLaunchedWorld runs the cases that the Python client runs, too.
func TestLaunchedWorld(t *testing.T) {
	b, err := os.ReadFile("../../../../testdata/launchers.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Why         string
			Env         map[string]string
			World, Rank int
			Here        []int
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Cases) < 10 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}
	for _, c := range golden.Cases {
		var environ []string
		for name, value := range c.Env {
			environ = append(environ, name+"="+value)
		}
		w := launchedWorld(environ)
		if w.size != c.World || w.rank != c.Rank || !slices.Equal(w.here, c.Here) || (w.here == nil) != (c.Here == nil) {
			t.Errorf("%s: %+v, want rank %d of %d, here %v", c.Why, w, c.Rank, c.World, c.Here)
		}
	}
}

// TestPlaced: the cache of a run that is one of several of a launcher knows which ranks read here, and its samples stay where they are. On one machine nothing changes.
func TestPlaced(t *testing.T) {
	torchrun := func(world, rank, localRank, localWorld string) []string {
		return []string{"WORLD_SIZE=" + world, "RANK=" + rank, "LOCAL_RANK=" + localRank, "LOCAL_WORLD_SIZE=" + localWorld}
	}
	part, other, all := torchrun("4", "2", "0", "2"), torchrun("4", "0", "0", "2"), torchrun("4", "2", "2", "4")
	srun := []string{"SLURM_NTASKS=4", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_TASKS_PER_NODE=2(x2)", "SLURM_JOB_NAME=train"}
	recipe := func(j schedule.Job) schedule.Job {
		j.Recipe, j.BatchSize = "torch.distributed_sampler", 2
		return j
	}
	for _, c := range []struct {
		name       string
		made       *schedule.Job // of the cache before; nil: there is none
		madeEnv    []string
		job        *schedule.Job // that is asked for; nil: none is
		ranksGiven bool
		env        []string
		world      int
		ranks      []int
		layout     string
	}{
		{"no launcher", nil, nil, nil, false, nil, 0, nil, cache.LayoutLog},
		{"one machine", nil, nil, nil, false, all, 0, nil, cache.LayoutLog},
		{"a part", nil, nil, nil, false, part, 4, []int{2, 3}, cache.LayoutStatic},
		{"a part, with a recipe", nil, nil, new(recipe(schedule.Job{})), false, part, 4, []int{2, 3}, cache.LayoutStatic},
		{"a part, and its world was given", nil, nil, &schedule.Job{World: 4}, false, part, 4, []int{2, 3}, cache.LayoutStatic},
		{"a task of srun", nil, nil, nil, false, append([]string{"SLURM_STEP_ID=0"}, srun...), 4, []int{0, 1}, cache.LayoutStatic},
		{"a batch script before srun", nil, nil, nil, false, srun, 0, nil, cache.LayoutLog},
		{"another world was given", nil, nil, &schedule.Job{World: 8}, false, part, 8, nil, cache.LayoutLog},
		{"ranks were given", nil, nil, &schedule.Job{World: 4, Ranks: []int{0}}, true, part, 4, []int{0}, cache.LayoutStatic},
		{"all ranks were given", nil, nil, &schedule.Job{World: 4}, true, part, 4, nil, cache.LayoutLog},
		{"a cache of one machine", &schedule.Job{}, nil, nil, false, part, 4, []int{2, 3}, cache.LayoutStatic},
		{"a cache of other ranks", &schedule.Job{}, other, nil, false, part, 4, []int{2, 3}, cache.LayoutStatic},
		{"a cache of a part, and all ranks are here now", &schedule.Job{}, part, nil, false, all, 4, nil, cache.LayoutLog},
		{"a cache of a part, and no launcher", &schedule.Job{}, part, nil, false, nil, 4, []int{2, 3}, cache.LayoutStatic},
		{"a cache whose recipe has another world", new(recipe(schedule.Job{World: 2})), nil, nil, false, part, 2, nil, cache.LayoutLog},
		{"a cache whose recipe has this world", new(recipe(schedule.Job{World: 4})), nil, nil, false, part, 4, []int{2, 3}, cache.LayoutStatic},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, _ := options(t, "true")
			plain := slices.DeleteFunc(slices.Clone(o.Environ), func(v string) bool {
				name, _, _ := strings.Cut(v, "=")
				return strings.HasPrefix(name, "SLURM_") || slices.Contains([]string{"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, name)
			})
			if c.made != nil {
				o.Environ, o.Ingest.Job, o.JobGiven = append(slices.Clone(plain), c.madeEnv...), *c.made, true
				if _, err := Run(context.Background(), o); err != nil {
					t.Fatal(err)
				}
				o.Ingest.Job = schedule.Job{}
			}
			o.Environ, o.RanksGiven = append(slices.Clone(plain), c.env...), c.ranksGiven
			if o.JobGiven = c.job != nil; o.JobGiven {
				o.Ingest.Job = *c.job
			}
			r, err := Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			dirs, err := filepath.Glob(filepath.Join(o.Roots[0], "data-*"))
			if err != nil || len(dirs) != 1 {
				t.Fatal(dirs, err)
			}
			record, err := cache.ReadRecord(dirs[0])
			if err != nil {
				t.Fatal(err)
			}
			if record.Job.World != c.world || !slices.Equal(record.Job.Ranks, c.ranks) {
				t.Errorf("job.json has ranks %v of %d, want %v of %d", record.Job.Ranks, record.Job.World, c.ranks, c.world)
			}
			if s := r.Sources[0].Status.Jobs[0]; s.Layout != c.layout {
				t.Errorf("%s: %s; want %s", s.Layout, s.LayoutReason, c.layout)
			}
		})
	}
}

// TestPlacedSources: sources after the first have the same ranks, with a batch size and without.
func TestPlacedSources(t *testing.T) {
	for _, batch := range []int{0, 2} {
		o, _ := options(t, "true")
		o.Sources = []Source{{"train", o.Sources[0].Path}, {"val", filepath.Join(o.Sources[0].Path, "class1")}}
		o.Ingest.Flat, o.Ingest.Job.BatchSize, o.JobGiven = true, batch, batch > 0
		o.Environ = append(o.Environ, "WORLD_SIZE=4", "RANK=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2")
		r, err := Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Sources {
			if s := s.Status.Jobs[0]; s.Layout != cache.LayoutStatic || !strings.HasPrefix(s.LayoutReason, "2 of 4 ranks") {
				t.Errorf("%s, batch size %d: %s: %s", s.Source, batch, s.Layout, s.LayoutReason)
			}
		}
	}
}

// TestServedWorldStays: a running server keeps its layout and its job, whatever world the launcher of a run that attaches to it has.
func TestServedWorldStays(t *testing.T) {
	o, _ := options(t, "true")
	if _, err := Run(context.Background(), o); err != nil { // makes the cache
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(o.Roots[0], "data-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	serve := ServeOptions{Registry: o.Registry, Version: "test"}
	serve.Engine.Dirs, serve.Engine.IO = dirs, o.Engine.IO
	err = Serve(ctx, serve, func(Served) error {
		defer stop()
		o.Environ = append(o.Environ, "WORLD_SIZE=4", "RANK=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2")
		var opened *Opened
		o.Opened = func(_ int, now *Opened) { opened = now }
		r, err := Run(context.Background(), o)
		if err != nil {
			return err
		}
		if s := r.Sources[0]; s.AttachedTo != os.Getpid() || s.Status.Jobs[0].Layout != cache.LayoutLog || opened.OtherJob {
			t.Errorf("attached to %d, layout %s, another job: %v", s.AttachedTo, s.Status.Jobs[0].Layout, opened.OtherJob)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
