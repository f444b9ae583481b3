// Package policy says which samples stay in memory. A [Policy] is one rule: [NextUse] by the order itself, [HCache], [APP] and
// [Valued] as the papers do, [LRU] and [MinIO] to compare with. [Homophily] has [Nodes] beside any of them, and these may stand in
// for their neighbours. [Top] chooses the samples of greatest value, and [Keeping] which samples a log keeps. The package has indices
// and sizes, and no bytes. What it keeps for each sample lies outside Go's heap, so each policy is closed. One goroutine may use a policy at a time.
package policy
