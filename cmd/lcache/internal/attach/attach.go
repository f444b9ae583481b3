// Package attach finds the running servers of this user, and asks them for their status.
//
// Every server keeps an Entry, a small file in a folder that only its user can write: Register makes one, Registered lists them. A Client is
// a connection to one server, made by Dial. It speaks as much of docs/protocol.md as a question for the status needs: it takes no shared
// memory, and can't read samples. Functions may be called concurrently, a Client's methods may not.
package attach
