package server

import "context"

// maxDiagnosis is the memory that is reserved for the answer to DIAGNOSE.
const maxDiagnosis = 12 << 20

// diagnose answers DIAGNOSE. Only the server's own user and root get an answer, not the members of a group that may connect: stacks and log messages have
// names that the group may not know.
func (c *conn) diagnose(ctx context.Context, q *request) (err error) {
	switch {
	case len(q.body) != 0:
		return broken("DIAGNOSE has a body")
	case !c.owner:
		return argument("only the user who started this server may request its diagnosis")
	case c.s.opts.Diagnose == nil:
		return argument("this server is a part of a program that offers no diagnosis")
	}
	if err := c.roomFor(ctx, maxDiagnosis); err != nil { // before the profiles are made
		return err
	}
	c.out, err = appendJSON(c.out, typeJSON, q.request, c.s.opts.Diagnose())
	return err
}
