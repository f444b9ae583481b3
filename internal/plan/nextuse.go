package plan

import (
	"fmt"
	"math"
)

// NextUse returns the gain of a node without peers that keeps only samples it will read again within g epochs: the
// hit ratio, and the share of the dataset that its cache must hold. In each epoch, a sample belongs to a given node
// with probability 1/n.
func NextUse(nodes, epochsAhead float64) (hit, share float64, err error) {
	if !(nodes >= 1 && nodes <= 1e12) || !(epochsAhead >= 0 && epochsAhead <= 1e15) {
		return 0, 0, fmt.Errorf("%g nodes looking %g epochs ahead: nodes must be at least 1, and epochs not negative", nodes, epochsAhead)
	}
	hit, share = nextUse(nodes, epochsAhead)
	return hit, share, nil
}

func nextUse(nodes, g float64) (hit, share float64) {
	q := 1 / nodes
	hit = -math.Expm1(g * math.Log1p(-q))
	if nodes == 1 {
		hit = min(g, 1)
	}
	return hit, max(0, hit-g*q*(1-hit))
}

// NextUseAt returns the hit ratio of a next-use cache that holds a share of the dataset. It interpolates between whole numbers of epochs.
func NextUseAt(nodes, share float64) (hit float64, err error) {
	if !(nodes >= 1 && nodes <= 1e12) || !(share >= 0) {
		return 0, fmt.Errorf("%g nodes that hold the share %g: nodes must be at least 1, and the share not negative", nodes, share)
	}
	if nodes == 1 || share >= 1 {
		return min(1, share), nil
	}
	lo, hi := 0.0, 1.0
	for {
		if _, need := nextUse(nodes, hi); need > share || hi > 1e15 {
			break
		}
		lo, hi = hi, 2*hi
	}
	for hi-lo > 1 {
		mid := math.Floor((lo + hi) / 2)
		if _, need := nextUse(nodes, mid); need > share {
			hi = mid
		} else {
			lo = mid
		}
	}
	h0, s0 := nextUse(nodes, lo)
	h1, s1 := nextUse(nodes, hi)
	if s1 <= s0 {
		return h0, nil
	}
	return min(1, h0+(h1-h0)*clip((share-s0)/(s1-s0), 0, 1)), nil
}
