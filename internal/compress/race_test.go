//go:build race

package compress

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// racesEnv names the race that a child of TestRacesAreSeen runs.
const racesEnv = "STORED_RACE"

// TestRacesAreSeen: the race detector notices bytes that change while lz4 reads them, and reads while lz4 writes. A
// child runs each race, and the detector ends it with exit code 66.
func TestRacesAreSeen(t *testing.T) {
	plain := text(rand.New(rand.NewPCG(1, 2)), 10_000)
	packed, ok := new(packer).pack(plain, align)
	if !ok {
		t.Fatal("the text is not compressed")
	}
	dst := make([]byte, len(plain))
	races := map[string][2]func(){
		"packed and changed":   {func() { new(packer).pack(plain, align) }, func() { plain[5000]++ }},
		"unpacked and changed": {func() { unpack(packed, dst) }, func() { packed[len(packed)-1]++ }},
		"unpacked and read":    {func() { unpack(packed, dst) }, func() { plain = bytes.Clone(dst[5000:5001]) }},
		"none":                 {func() { unpack(packed, dst) }, func() { new(packer).pack(plain, align) }},
	}
	if race, ok := races[os.Getenv(racesEnv)]; ok {
		var both sync.WaitGroup
		both.Go(func() {
			time.Sleep(10 * time.Millisecond) // lz4 runs second: if it is compiled with the detector, its many accesses make the detector forget the first one
			race[0]()
		})
		both.Go(race[1])
		both.Wait()
		return
	}
	for name := range races {
		child := exec.Command(os.Args[0], "-test.run=^TestRacesAreSeen$")
		child.Env = append(os.Environ(), racesEnv+"="+name)
		said, err := child.CombinedOutput()
		var ended *exec.ExitError
		if seen := bytes.Contains(said, []byte("DATA RACE")) && errors.As(err, &ended); seen != (name != "none") {
			t.Errorf("%s: seen %v; %v\n%s", name, seen, err, said)
		}
	}
}
