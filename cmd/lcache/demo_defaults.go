package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"lcache/cmd/lcache/internal/demo"
	"lcache/internal/errcode"
)

// completeDemo chooses the interpreter, the Python package and the source that the user did not give.
func completeDemo(o *demo.Options) error {
	here := ""
	if exe, err := os.Executable(); err == nil {
		here = filepath.Dir(exe)
	}
	if o.Python == "" {
		o.Python = "python3"
		if beside := filepath.Join(here, "python3"); here != "" && isRunnable(beside) { // pip installed the program next to it
			o.Python = beside
		}
	}
	if _, err := exec.LookPath(o.Python); err != nil {
		return errcode.Errorf(errcode.NotRunnable, "no %s: install Python 3.9 or newer, or give --python", o.Python)
	}
	if o.Client == "" {
		if o.Client = demoClient(here, o.Python); o.Client == "" {
			return usagef("no Python package lcache for %s: install it, run demo in the project's folder, or give --client DIR", o.Python)
		}
	}
	if o.Source == "" {
		if o.Source, o.Exts = demoFiles(o.Python); o.Source == "" {
			return usagef("no Go toolchain and no Python library here to take files from: give --source DIR")
		}
	}
	return nil
}

// demoClient returns the folder of the Python package: the project's, that of the archive or package which this program is from, or the interpreter's own.
func demoClient(here, python string) string {
	for _, folder := range []string{"python", filepath.Join(here, "..", "share", "lcache", "python"), filepath.Join(here, "..")} {
		if hasClient(folder) {
			return folder
		}
	}
	return said(python, "import lcache, os; print(os.path.dirname(os.path.dirname(lcache.__file__)))")
}

// demoFiles returns a folder of real files, and the endings of the files to take from it: the Go toolchain's source, else Python's own library. Of that only
// the source files, because Python itself writes the others.
func demoFiles(python string) (dir string, exts []string) {
	if root := said("go", "env", "GOROOT"); root != "" {
		return filepath.Join(root, "src"), nil
	}
	return said(python, "import sysconfig; print(sysconfig.get_path('stdlib'))"), []string{".py"}
}

// said returns the line that a command prints, or "" if it fails. Of Python, the arguments are a program.
func said(name string, args ...string) string {
	if name != "go" {
		args = append([]string{"-c"}, args...)
	}
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func hasClient(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "lcache", "__init__.py"))
	return err == nil
}

func isRunnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
