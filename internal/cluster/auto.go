package cluster

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Auto is the word for a member that finds the others by the variables of a launcher.
const Auto = "auto"

// An Environment describes the machines of a training, as far as the variables of its launcher name them.
type Environment struct {
	Where  Where
	Expect int    // machines; 0: unknown
	From   string // the variable that Where comes from; "": no launcher, or only this machine
}

// autoHosts is how many hosts of a list are asked: one is enough, if it is there.
const autoHosts = 3

// Looked names the variables that FromEnvironment looks at, for people.
const Looked = "SLURM_STEP_NODELIST, SLURM_JOB_NODELIST, and MASTER_ADDR with WORLD_SIZE above LOCAL_WORLD_SIZE"

// FromEnvironment finds the machines of a training by the variables of Slurm, or else of torchrun and of what sets the same variables (accelerate,
// DeepSpeed, Lightning, Ray Train, the operators of Kubernetes). getenv returns "" for an unset variable.
func FromEnvironment(getenv func(string) string) (e Environment) {
	number := func(names ...string) int {
		for _, name := range names {
			if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
				return n
			}
		}
		return 0
	}
	const mostMachines = 1 << 10
	world, local := number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")
	inStep := getenv("SLURM_STEP_ID") != "" || getenv("SLURM_STEPID") != "" || getenv("SLURM_STEP_NODELIST") != ""
	for _, name := range []string{"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"} {
		list := getenv(name)
		if list == "" || !inStep { // a shell or a batch script within an allocation is one machine
			continue
		}
		if hosts := firstHosts(list, autoHosts); len(hosts) > 1 {
			for _, h := range hosts {
				e.Where.Seeds = append(e.Where.Seeds, Seed{Host: h})
			}
			e.From, e.Expect, e.Where.IsFound = name, min(number("SLURM_STEP_NUM_NODES"), mostMachines), true
			return e
		}
		break // a step on one machine, within an allocation of several
	}
	if host := getenv("MASTER_ADDR"); host != "" && local > 0 && world > local {
		e.Where.Seeds, e.From, e.Where.IsFound = []Seed{{Host: strings.Trim(host, "[]")}}, "MASTER_ADDR", true
		if e.Expect = number("GROUP_WORLD_SIZE"); e.Expect == 0 {
			e.Expect = world / local
		}
		e.Expect = min(e.Expect, mostMachines)
		return e
	}
	return Environment{}
}

// firstHosts returns the first n hosts of a list as Slurm writes it: node[01-03,7],login1.
func firstHosts(list string, n int) (hosts []string) {
	for len(list) > 0 && len(hosts) < n {
		end := len(list)
		depth := 0
		for i, c := range list {
			switch c {
			case '[':
				depth++
			case ']':
				depth--
			}
			if c == ',' && depth == 0 {
				end = i
				break
			}
		}
		hosts = append(hosts, expand(list[:end], n-len(hosts))...)
		list = strings.TrimPrefix(list[end:], ",")
	}
	return hosts
}

// expand returns the first n names of prefix[ranges]suffix, which may have brackets again.
func expand(text string, n int) (names []string) {
	prefix, rest, ok := strings.Cut(text, "[")
	if !ok {
		if text == "" || net.ParseIP(text) == nil && strings.ContainsAny(text, " \t[]/@") {
			return nil
		}
		return []string{text}
	}
	ranges, suffix, ok := strings.Cut(rest, "]")
	if !ok {
		return nil
	}
	for _, r := range strings.Split(ranges, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil || a < 0 || b < a {
			return nil
		}
		for ; a <= b && len(names) < n; a++ {
			more := expand(fmt.Sprintf("%s%0*d%s", prefix, len(from), a, suffix), n-len(names))
			if more == nil {
				return nil
			}
			names = append(names, more...)
		}
	}
	return names
}
