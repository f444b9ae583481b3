package ingest

import "lcache/cache"

// follows is the rule of this listing.
func (in *run) follows() bool { return in.o.FollowLinks == nil || *in.o.FollowLinks }

func (in *run) linkFacts() cache.LinkFacts {
	return cache.LinkFacts{FollowLinks: in.follows(), FollowGiven: in.o.FollowLinks != nil && *in.o.FollowLinks, OutsideLinks: in.outside}
}
