package statefulset

var NewReconciler = newReconciler

const PodsByController = podsByController
