// Package process runs containers as ordinary processes of the machine. It
// needs nothing installed and no rights: no image is pulled (the image's name
// is accepted and not used), and the command is a program of the machine.
//
// # What survives what
//
// Each instance of a container has a shim: this same binary, executed again,
// that owns the process, writes its log and records how it ended. An agent may
// be killed at any moment and started again; it finds the shims by their state
// and goes on. A shim holds a record lock on its own directory for as long as
// it lives, so that "does it run?" is a question to the kernel, which a reused
// process number cannot answer wrongly; and an instance's directory is made
// once, so no instance ever runs twice. When the process ends, for whatever
// reason, the shim kills all that descends from it (it is their subreaper, so
// nothing escapes by forking twice), and the agent hears of it through a pidfd,
// at once and without polling. When a shim itself is killed, the kernel kills
// its process and the agent what is left of the others.
//
// # Commands and clients beside a container
//
// The shim listens on a socket in its directory. By it the agent has a command
// started beside the container: with its environment, working directory, user,
// mounts and control group, as a child of the shim, so that it cannot outlive
// the container. When the agent closes the connection, or dies, the command is
// killed with all of its session. What a command leaves behind after it has
// ended well lives on as part of the container.
//
// By the same socket clients attach to the container's own streams. Output goes
// to them as it is printed and to the log. A client that reads slowly slows the
// container down; one that reads nothing for ten seconds is cut off.
//
// # The state directory
//
//	pods/UID/pod.json                       who it is, its address
//	pods/UID/containers/NAME/N/config.json  what the Nth restart was told to run
//	pods/UID/containers/NAME/N/control      the shim's socket
//	pods/UID/containers/NAME/N/lock         locked by the shim while it lives
//	pods/UID/containers/NAME/N/state.json   the process, once it was started
//	pods/UID/containers/NAME/N/exit.json    how it ended, once it has
//	pods/UID/containers/NAME/N/log          what it printed; rotated to log.1 …
//
// # Addresses
//
// Each pod gets a loopback address of its own from 127.64.0.0/10, unique on the
// machine. A process that listens on that address leaves its port free for the
// next pod; one that listens on every address does not, and its second copy
// fails with "address already in use". The address is in the variable POD_IP,
// and the container's first port in PORT unless the container sets it, so a
// command can say --listen=$(POD_IP):8080.
//
// # Volumes
//
// With the rights of root, a container with volumes gets a private mount
// namespace in which each volume stands at its mountPath; nothing else of the
// machine is hidden. A mountPath that the machine does not have appears in the
// container only: the nearest directory above it is shadowed by a temporary
// one with the same entries. Without those rights a mountPath is not there and
// the command finds the directory of volume "web-data" in the variable
// SETPOINT_VOLUME_WEB_DATA, which is set in both cases.
//
// # Limits
//
// CPU and memory limits need a writable cgroup v2 hierarchy and are not
// enforced otherwise. Users (runAsUser) need root.
package process
