package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/testenv"
	"lcache/shuffle"
)

// orderCommand runs lcache order and returns its output.
func orderCommand(args ...string) (string, error) {
	cmd := newOrderCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestOrderOutput(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--recipe torch.randperm --samples 3 --seed 0 --epoch 0", "2\n0\n1\n"},
		{"--recipe torch.randperm --samples 0 --seed 0", ""},
		{"--recipe torch.randperm --samples 3 --seed 0 --format u32le", "\x02\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00"},
		{"--recipe torch.randperm --samples 3 --seed 0 --format json", `{"schema":1,"recipe":"torch.randperm","epoch":0,"order":[2,0,1]}` + "\n"},
		{"--recipe torch.randperm --samples 0 --seed 0 --json", `{"schema":1,"recipe":"torch.randperm","epoch":0,"order":[]}` + "\n"},
		{"--recipe torch.distributed_sampler --samples 5 --world-size 2 --param shuffle=false --epoch 7", "0\n1\n2\n3\n4\n"},
		{"--recipe torch.distributed_sampler --samples 5 --world-size 2 --param shuffle=false --rank 1", "1\n3\n0\n"},
		{"--recipe torch.distributed_sampler --samples 5 --world-size 2 --param shuffle=false --rank 1 --drop-last", "1\n3\n"},
		{"--recipe torch.distributed_sampler --samples 5 --world-size 2 --param shuffle=false --ranks 1,0", "1\n3\n0\n0\n2\n4\n"},
		{"--recipe torch.distributed_sampler --samples 5 --world-size 2 --param shuffle=false --ranks all --json", `{"schema":1,"recipe":"torch.distributed_sampler","epoch":0,"order":[0,2,4,1,3,0]}` + "\n"},
		{"--recipe torch.randperm --samples 0 --seed 0 --digest", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"},
		{"--recipe torch.random_int64 --samples 2 --seed 0", "900450186894289455\n3969543146641149120\n"},
		{"--recipe torch.random_int64 --samples 1 --seed 0 --param full_range=true --json", `{"schema":1,"recipe":"torch.random_int64","epoch":0,"values":[-8322921849960486353]}` + "\n"},
	} {
		got, err := orderCommand(strings.Fields(c.args)...)
		if err != nil || got != c.want {
			t.Errorf("order %s:\n got %q (%v)\nwant %q", c.args, got, err, c.want)
		}
	}
}

func TestOrderUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "no recipe is named"},
		{"--recipe torch.nosuch --samples 3", "unknown recipe torch.nosuch"},
		{"--recipe torch.randperm --seed 1", "n is missing (--samples"},
		{"--recipe torch.randperm --samples 3", "its parameters: n, seed, state"},
		{"--recipe torch.randperm --samples 3 --seed 1 --rank 1", "rank is 1"},
		{"--recipe torch.randperm --samples 3 --seed 1 --epoch -1", "epochs count from 0"},
		{"--recipe torch.randperm --samples 3 --seed 1 --param a=b", "no parameter a"},
		{"--recipe torch.random_int64 --samples 3 --seed 1 --digest", "64-bit numbers"},
		{"--recipe torch.randperm --samples 3 --seed 1 --rank 0 --ranks all", "not both"},
		{"--list --format u32le", "--list is printed"},
	} {
		out, err := orderCommand(strings.Fields(c.args)...)
		var recipe *shuffle.UsageError
		var usage *usageError
		if !errors.As(err, &recipe) && !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("order %s: printed %q and gave %v, want a usage error with %q", c.args, out, err, c.want)
		}
	}
}

// The list has every recipe and every parameter, in both forms.
func TestOrderList(t *testing.T) {
	text, err := orderCommand("--list")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := orderCommand("--list", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Schema  int
		Recipes []struct {
			Name   string
			Params []struct{ Name, Flag string }
		}
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || list.Schema != 1 {
		t.Fatalf("schema %d: %v", list.Schema, err)
	}
	recipes := shuffle.Recipes()
	if len(list.Recipes) != len(recipes) {
		t.Fatalf("%d recipes listed, want %d", len(list.Recipes), len(recipes))
	}
	for i, r := range recipes {
		if list.Recipes[i].Name != r.Name || !strings.Contains(text, "\n"+r.Name+"\n") && !strings.HasPrefix(text, r.Name+"\n") {
			t.Errorf("%s is not listed", r.Name)
		}
		for k, p := range r.Params {
			if list.Recipes[i].Params[k].Name != p.Name || !strings.Contains(text, p.Meaning) {
				t.Errorf("%s: parameter %s is not listed", r.Name, p.Name)
			}
		}
	}
}

// The command line gives the orders of the frameworks, with the vectors' parameters as flags.
func TestOrderVectors(t *testing.T) {
	testenv.WithoutRace(t)
	dir := os.Getenv("SHUFFLE_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "..", "testdata", "vectors")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no vectors in %s: %v", dir, err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Recipe string
			Cases  []struct {
				Params map[string]json.RawMessage
				Epochs []struct {
					Epoch, Count int
					SHA256       string
				}
			}
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, c := range file.Cases {
			args := append([]string{"--recipe", file.Recipe}, vectorFlags(t, c.Params)...)
			for _, e := range c.Epochs {
				out, err := orderCommand(append(args, "--epoch", strconv.Itoa(e.Epoch), "--format", "u32le")...)
				if got := fmt.Sprintf("%x", sha256.Sum256([]byte(out))); err != nil || got != e.SHA256 || len(out) != 4*e.Count {
					t.Errorf("%s case %d epoch %d: %d bytes, %s, want %d, %s (%v)", file.Recipe, i, e.Epoch, len(out), got, 4*e.Count, e.SHA256, err)
				}
			}
		}
	}
}

func vectorFlags(t *testing.T, params map[string]json.RawMessage) (flags []string) {
	t.Helper()
	own := map[string]string{"n": "--samples", "seed": "--seed", "batch_size": "--batch-size", "world": "--world-size", "rank": "--rank"}
	for key, raw := range params {
		text := string(raw)
		var bare string
		if json.Unmarshal(raw, &bare) == nil {
			text = bare
		}
		switch {
		case string(raw) == "null":
		case key == "drop_last":
			flags = append(flags, "--drop-last="+text)
		case own[key] != "":
			flags = append(flags, own[key], text)
		case key == "weights_formula":
			n, err := strconv.Atoi(string(params["n"]))
			if err != nil {
				t.Fatal(err)
			}
			flags = append(flags, "--param", "weights="+weightsFile(t, n))
		default:
			flags = append(flags, "--param", key+"="+text)
		}
	}
	return slices.Clip(flags)
}

// weightsFile has the weights 1 + ((i*2654435761) mod 2^32) / 2^32 as float64.
func weightsFile(t *testing.T, n int) string {
	t.Helper()
	var data []byte
	for i := range n {
		w := 1 + float64(uint32(uint64(i)*2654435761))/(1<<32)
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(w))
	}
	name := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
