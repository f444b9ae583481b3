// Package score computes values from the trainer's observations: one number per sample; a greater value matters more.
// An [Observation] is the report of one rank about one batch. A [Scorer] turns observations into values: by loss
// ([Loss]), by rank within a batch ([Rank]), or by neighbours in embedding space ([Graph]). Its state can be saved
// and restored. Invalid parts of an observation are skipped and counted in a [Report]. The package draws no order and
// stores no sample. Only one goroutine may use a scorer at a time.
package score
