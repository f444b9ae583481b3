// Package policy decides which samples stay in memory. A [Policy] is one rule: [NextUse] by the order itself;
// [HCache], [APP] and [Valued] as in the papers; [LRU] and [MinIO] for comparison. [Homophily] adds [Nodes] to any of
// them; a node may replace its neighbours. [Top] chooses the samples of greatest value, and [Keeping] the samples
// that a log keeps. The package handles indices and sizes, not bytes. Its memory per sample is outside Go's heap, so
// each policy must be closed. Only one goroutine may use a policy at a time.
package policy
