// Package errcode numbers the errors of lcache, so that programs and people can name one without its text.
//
// Table is the list of all codes. Texts of errors may change in each release; a code keeps its meaning. A new code takes the next number, and a row stays in
// the table when nothing sends its code any longer, so that no number gets a second meaning. The package has no state.
package errcode

// A Code is "LC" and three digits.
type Code string

// The codes of ERROR frames, in the order of their numbers.
const (
	Sample          Code = "LC001"
	SampleNotFound  Code = "LC002"
	SampleForbidden Code = "LC003"
	Timeout         Code = "LC004"
	Room            Code = "LC005"
	Late            Code = "LC006"
	Argument        Code = "LC007"
	TooLarge        Code = "LC008"
	Cancelled       Code = "LC009"
	Internal        Code = "LC010"
	Protocol        Code = "LC011"
	Denied          Code = "LC012"
	Closing         Code = "LC013"
)

// A Row describes a Code.
type Row struct {
	Code    Code
	Name    string // lower case, words separated by hyphens
	Meaning string // one line
}

// Table has a row for each code, in the order of their numbers.
var Table = []Row{
	{Sample, "sample", "a sample can't be read, and neither LC002 nor LC003 is the cause"},
	{SampleNotFound, "sample-not-found", "the source no longer has a sample"},
	{SampleForbidden, "sample-forbidden", "the server's user may not read a sample"},
	{Timeout, "timeout", "the server reached its deadline for the request"},
	{Room, "room", "leases leave no room for the answer: ask for it by LEND"},
	{Late, "late", "the loan ended before COPIED"},
	{Argument, "argument", "the request makes no sense for this job, and LC008 is not the cause"},
	{TooLarge, "too-large", "the answer needs more memory than the server has for one, or does not fit a frame: ask for fewer samples at once"},
	{Cancelled, "cancelled", "a CANCEL named the request"},
	{Internal, "internal", "a fault of the server, whose log has more"},
	{Protocol, "protocol", "the client broke a rule of the protocol, or has another version of it"},
	{Denied, "denied", "the client's user is not allowed"},
	{Closing, "closing", "the server stops, or has no room for a frame: connect again"},
}
