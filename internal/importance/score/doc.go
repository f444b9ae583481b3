// Package score makes values of what the trainer observes: one number a sample; the greater, the more it matters. An
// [Observation] is what one rank saw in one batch. A [Scorer] takes observations and makes values of them: by loss ([Loss]), by
// rank within a batch ([Rank]), or by neighbours in embedding space ([Graph]). Its state can be saved and restored. What is wrong in
// an observation is left out and counted in a [Report]. The package draws no order and keeps no sample. One goroutine may use a
// scorer at a time.
package score
