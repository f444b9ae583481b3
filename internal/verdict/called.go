package verdict

// Called returns the name of a bottleneck for people, with its article. word is a value of bound_by in the status document.
func Called(word string) string {
	switch word {
	case "consumer":
		return "the training loop"
	case "decode":
		return "decoding"
	case "peer":
		return "the network or other machines"
	case "source", "disk", "network":
		return "the " + word
	}
	return "not known"
}
