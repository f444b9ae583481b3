package usage

import (
	"os/exec"
	"testing"
)

func TestShellWord(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ShellWord("/nvme/train"), "/nvme/train"},
		{ShellWord("/a b/it's"), `'/a b/it'\''s'`},
		{ShellWord(""), "''"},
		{ShellWord("/train/é"), "/train/é"},
		{ShellWord("/caf\xe9 a"), `$'/caf\xe9 a'`},
		{ShellWord("a\n'\\é"), `$'a\x0a\'\\\xc3\xa9'`},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestShellReadsWord: bash reads each quoted word as the original.
func TestShellReadsWord(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	for _, word := range []string{"/nvme/train", "/a b/it's", "caf\xe9\xff0", "a\nb\x1b\\x41", `caf\xe9`, "é'\xe9", "$HOME\x01"} {
		if out, err := exec.Command(bash, "-c", "printf %s "+ShellWord(word)).Output(); err != nil || string(out) != word {
			t.Errorf("%s reads as %q, %v; want %q", ShellWord(word), out, err, word)
		}
	}
}
