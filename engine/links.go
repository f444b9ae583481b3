package engine

import (
	"fmt"

	"lcache/source"
)

// linkFacts is what job.json says of links. A cache of an earlier version has none of it, and was listed without leaving the source.
type linkFacts struct {
	FollowLinks  bool `json:"follow_links"`                 // links that leave the source are followed
	FollowGiven  bool `json:"follow_links_given,omitempty"` // because the user said so
	OutsideLinks int  `json:"outside_links"`                // samples that are reached through one
}

// follows is the rule of this listing.
func (in *ingest) follows() bool { return in.FollowLinks == nil || *in.FollowLinks }

func (in *ingest) linkFacts() linkFacts {
	return linkFacts{FollowLinks: in.follows(), FollowGiven: in.FollowLinks != nil && *in.FollowLinks, OutsideLinks: in.outside}
}

// sourceOptions are those that later reads of the source need.
func (j *jobFile) sourceOptions() source.Options {
	return source.Options{Exts: j.Exts, Flat: j.Flat, Group: j.Group, NoFollowLinks: !j.FollowLinks}
}

// checkLinks refuses to serve what is reached through links that leave the source to other users, unless the user said that they may
// have it: such a link can lead to whatever this process may read. Where nothing outside may be read, reads are held to that.
func (c *core) checkLinks(o Options) error {
	allowed := !o.Shared || c.job.FollowGiven
	if o.FollowLinks != nil {
		allowed = *o.FollowLinks
	}
	switch n := c.job.OutsideLinks; {
	case allowed || !c.job.FollowLinks:
		return nil
	case n > 0 && o.FollowLinks != nil:
		return fmt.Errorf("%d samples of %s are reached through links that leave it: leave out --no-follow-links, or list the source without them: lcache ingest --no-follow-links", n, c.job.Source)
	case n > 0:
		return fmt.Errorf("%d samples of %s are reached through links that leave it, and other users may connect (--socket-group, --socket-mode): give --follow-links if they may have those too, or put the files themselves into the source",
			n, c.job.Source)
	}
	c.job.FollowLinks = false
	err := c.source.Close()
	if c.source = nil; err != nil {
		return err
	}
	return c.openSource(c.job.Source, c.job.sourceOptions())
}
