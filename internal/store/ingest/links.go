package ingest

import "lcache/internal/store/cache"

// follows reports whether this listing follows links that leave the source.
func (in *run) follows() bool { return in.o.FollowLinks == nil || *in.o.FollowLinks }

// linkFacts returns the part of job.json about links.
func (in *run) linkFacts() cache.LinkFacts {
	return cache.LinkFacts{FollowLinks: in.follows(), FollowGiven: in.o.FollowLinks != nil && *in.o.FollowLinks, OutsideLinks: in.outside}
}
