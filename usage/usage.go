// Package usage has the error of a caller that asked for something impossible: a flag, an option or a combination of them that makes no
// sense. The command line answers it with its own exit code, because trying again does not help. It knows no flag itself.
package usage

import "fmt"

// Error says what was asked for, why that can't be, and what to give instead.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Errorf makes an Error of a format, as fmt.Errorf does.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
