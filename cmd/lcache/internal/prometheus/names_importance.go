package prometheus

import (
	"reflect"

	"lcache/internal/serve/status"
)

// ofImportance is the section of a job whose orders are drawn by importance.
const (
	ofImportance = "importance_"
	ofRefused    = "importance_refused_"
)

func init() {
	add(ofImportance, map[string]about{
		"epoch":                gauge("The epoch that is trained, from 0."),
		"epoch_length":         gauge("Samples of that epoch."),
		"warmup_epochs":        gauge("Epochs that the warm-up took; 0: it has not ended, or there is none."),
		"s_size":               gauge("Samples to reevaluate before each epoch.").named("importance_reevaluation_samples"),
		"requested":            counter("Samples delivered in the drawn order."),
		"h_bytes":              gauge("Bytes of samples in the memory of the policy.").named("importance_policy_bytes"),
		"l_bytes":              gauge("Bytes of samples in memory that may stand in for others.").named("importance_package_bytes"),
		"ratio":                gauge("Share of the memory for important samples.").named("importance_policy_share"),
		"h_hits":               counter("Samples delivered that were in the memory of the policy.").named("importance_policy_hits"),
		"l_hits":               counter("Samples delivered that were in loaded packages.").named("importance_package_hits"),
		"homophily_hits":       counter("Samples delivered that were kept as nodes."),
		"substituted":          counter("Samples delivered in place of others."),
		"substituted_max":      gauge("Most uses of one sample in place of others in an epoch."),
		"log_hits":             counter("Samples delivered that came from the log or from other memory."),
		"source_misses":        counter("Samples delivered that came from the source."),
		"packages_written":     counter("Packages written."),
		"packages_loaded":      counter("Packages loaded."),
		"cleaned_bytes":        counter("Bytes moved out of packages that were cleaned."),
		"unseen_share":         gauge("Share of all samples that the epoch leaves out."),
		"distinct_share":       gauge("Share of all samples that the epoch has."),
		"max_uses":             gauge("Most uses of one sample in the epoch."),
		"observations":         counter("Samples observed."),
		"observations_dropped": counter("Observations dropped because they arrived too fast."),
		"observed_share":       gauge("Share of all samples that were observed in the epoch before."),
		"last_observed_epoch":  gauge("The last epoch that was observed; -1: none."),
		"undelivered":          counter("Samples observed that had not been delivered."),
		"reevaluations_missed": counter("Epochs that began without reevaluating the unstable samples."),
	})
	add(ofRefused, map[string]about{
		"unknown":   counter("Samples observed that the dataset lacks."),
		"notfinite": counter("Losses that were not finite numbers."),
		"stale":     counter("Samples observed for an epoch that has ended or not begun."),
		"shape":     counter("Observations with invalid lengths or types."),
		"dimension": counter("Samples observed with embeddings of another dimension."),
	})
}

func (w writer) importance(i *status.Importance) {
	w.object(ofImportance, reflect.ValueOf(*i))
	w.object(ofRefused, reflect.ValueOf(i.Refused))
	w.states("importance_state", "1 for the present state of importance: warmup, active or idle.", labelState, i.State, "warmup", "active", "idle")
	w.info("importance_info", "1, with the method, the age of its losses, the memory policy and the kind of substitutes as labels.",
		[]string{"method", "lag", "policy", "substitute"}, []string{i.Method, i.Lag, i.Policy, i.Substitute})
}
