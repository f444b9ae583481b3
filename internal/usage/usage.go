// Package usage has the error for a request that makes no sense: a flag, an option or a combination of them. The
// command line exits with a separate code for it, because trying again does not help. The package knows no flags.
//
// For such errors it finds the name that a mistyped word was meant to be ([Nearest]), quotes words for a shell, and
// formats names and messages for people, because a file name may have any bytes. Functions keep no state and may be
// called concurrently.
package usage

import "fmt"

// An Error reports wrong arguments. Reason names them, the cause, and the arguments to give instead.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Errorf returns an Error, formatted like fmt.Errorf.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
