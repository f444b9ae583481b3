package cluster

import "testing"

func TestFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		where  string // "": alone
		expect int
	}{
		{"a laptop", nil, "", 0},
		{"torchrun on one machine", map[string]string{"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "1"}, "", 0},
		{"torchrun on four", map[string]string{"MASTER_ADDR": "node1", "WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "4"}, "node1", 4},
		{"a launcher without GROUP_WORLD_SIZE", map[string]string{"MASTER_ADDR": "10.0.0.1", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "10.0.0.1", 2},
		{"IPv6", map[string]string{"MASTER_ADDR": "[fe80::1]", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, "fe80::1", 2},
		{"no local world size: other machines are unknown", map[string]string{"MASTER_ADDR": "node1", "WORLD_SIZE": "16"}, "", 0},
		{"Slurm", map[string]string{"SLURM_STEP_NODELIST": "gpu[07-12],login", "SLURM_STEP_NUM_NODES": "7", "SLURM_JOB_NODELIST": "x[1-9]"}, "gpu07,gpu08,gpu09", 7},
		{"a shell in an allocation of Slurm", map[string]string{"SLURM_JOB_NODELIST": "a,b1", "SLURM_PROCID": "0"}, "", 0},
		{"a step without a list of its own", map[string]string{"SLURM_JOB_NODELIST": "a,b1", "SLURM_STEP_ID": "0"}, "a,b1", 0},
		{"torchrun in a step on each machine", map[string]string{"SLURM_STEP_NODELIST": "gpu3", "SLURM_STEP_NUM_NODES": "1", "MASTER_ADDR": "gpu1", "WORLD_SIZE": "32", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "4"}, "gpu1", 4},
		{"a step on one machine of an allocation", map[string]string{"SLURM_STEP_NODELIST": "gpu3", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_NODELIST": "gpu[1-4]"}, "", 0},
		{"two brackets", map[string]string{"SLURM_STEP_NODELIST": "r[1-2]n[09-10]"}, "r1n09,r1n10,r2n09", 0},
		{"a list that nothing understands", map[string]string{"SLURM_STEP_NODELIST": "gpu[1-", "SLURM_STEP_NUM_NODES": "x"}, "", 0},
		{"a long list that nothing understands", map[string]string{"SLURM_STEP_NODELIST": "n[1-999999999999][x"}, "", 0},
		{"a list without an end", map[string]string{"SLURM_STEP_NODELIST": "n[1-999999999999]"}, "n1,n2,n3", 0},
	} {
		e := FromEnvironment(func(name string) string { return c.env[name] })
		where := e.Where.String()
		if e.From == "" {
			where = ""
		}
		if where != c.where || e.Expect != c.expect {
			t.Errorf("%s: %q with %d machines, want %q with %d", c.name, where, e.Expect, c.where, c.expect)
		}
	}
}

func FuzzHosts(f *testing.F) {
	f.Add("gpu[07-12,15],login1")
	f.Add("a[1-2][3-4]b")
	f.Fuzz(func(t *testing.T, list string) {
		if hosts := firstHosts(list, 3); len(hosts) > 3 {
			t.Errorf("%q gave %q", list, hosts)
		}
	})
}
