package daemonset

var NewReconciler = newReconciler

const PodsByController = podsByController
