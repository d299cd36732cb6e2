package daemonset

var NewReconciler = newReconciler
