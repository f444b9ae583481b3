package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// NoTool skips t, because the program of a Debian package is missing. For root, which can run make test-tools, it is a failure, unless
// scripts/test-tools could not install the package: then the reason is in its file.
func NoTool(t testing.TB, debian string) {
	t.Helper()
	reason := ""
	if root, err := os.UserCacheDir(); err == nil {
		missing, _ := os.ReadFile(filepath.Join(root, "lcache-test-tools", "missing")) // no file: nothing was impossible
		for line := range strings.Lines(string(missing)) {
			if strings.HasPrefix(line, debian+": ") {
				reason = strings.TrimSpace(line)
			}
		}
	}
	switch {
	case reason != "":
		t.Skip(reason)
	case os.Getuid() == 0:
		t.Fatalf("%s is not installed: run make test-tools", debian)
	default:
		t.Skipf("%s is not installed: apt-get install %s", debian, debian)
	}
}
