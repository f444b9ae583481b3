// Package usage has the error of a caller that asked for something impossible: a flag, an option or a combination of them that makes no
// sense. The command line answers it with its own exit code, because trying again does not help. It knows no flag itself.
//
// For such errors it finds the word that a mistyped one was meant to be ([Nearest]), writes words as a shell reads them, and writes names and messages for people, since a name of a
// file may be any bytes. Functions keep no state and may be called concurrently.
package usage

import "fmt"

// Error says what was asked for, why that can't be, and what to give instead.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Errorf makes an Error of a format, as fmt.Errorf does.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
