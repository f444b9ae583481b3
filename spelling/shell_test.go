package spelling

import "testing"

func TestShellWord(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{ShellWord("/nvme/train"), "/nvme/train"},
		{ShellWord("/a b/it's"), `'/a b/it'\''s'`},
		{ShellWord(""), "''"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
