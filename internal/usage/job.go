package usage

import (
	"fmt"
	"regexp"
	"strconv"
)

// madeUp is the form of a token that lcache derived from a process, followed by the number of the loader in that process.
var madeUp = regexp.MustCompile(`^pid-(\d+)-[0-9a-f]{8}(?:/(\d+))?$`)

// JobName names a job for people by its token: as the user chose it, or by the process that lcache derived it from. It returns false for a job without a token.
func JobName(token string) (string, bool) {
	made := madeUp.FindStringSubmatch(token)
	switch {
	case made != nil && made[2] != "" && made[2] != "0":
		n, _ := strconv.Atoi(made[2])
		return fmt.Sprintf("pid %s loader %d", made[1], n+1), true
	case made != nil:
		return "pid " + made[1], true
	}
	return Name(token), token != ""
}
